//! Ruby scripts, stopped before their first statement: each run shows the same as a cold start.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use galgo_testkit::file::script;
use scene::warm::{Answer, Warm};
use std::path::Path;

/// Result of a run: standard output, standard error, and status.
type Run = (String, String, Status);

const VARS: [(&str, &str); 4] = [
    ("REQUEST_METHOD", "POST"),
    ("QUERY_STRING", "a=1&b=two+words"),
    ("CONTENT_TYPE", "application/x-www-form-urlencoded"),
    ("CONTENT_LENGTH", "13"),
];
const BODY: &[u8] = b"name=x&y=%41\n";

fn cold(path: &Path) -> Run {
    scene::warm::cold(path, &VARS, BODY)
}

fn seen(answer: Answer) -> Run {
    (answer.out, answer.err, answer.exit.status)
}

fn ruby(folder: &Path, text: &str) -> std::path::PathBuf {
    let first = if text.starts_with("#!") {
        ""
    } else {
        "#!/usr/bin/ruby\n"
    };
    script(folder, "script.rb", format!("{first}{text}"))
}

/// Checks that a script shows the same cold and in two children of the same template.
fn same(name: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = ruby(folder.path(), text);
    let expected = cold(&path);
    let warm = Warm::load(&path);
    assert_eq!(warm.loaded.obstacle, None, "{name}");
    assert!(warm.loaded.files.contains(&path), "{name}");
    for child in 1..=2 {
        assert_eq!(
            seen(warm.answer(&VARS, BODY, false)),
            expected,
            "{name}, child {child}"
        );
    }
}

#[rustfmt::skip] // a table
const SCRIPTS: &[(&str, &str)] = &[
    ("names", "p $0, __FILE__, __LINE__, __dir__, ARGV, $PROGRAM_NAME, $LOAD_PATH, $LOADED_FEATURES, caller, self, local_variables, $!, $VERBOSE"),
    ("environment", "p ENV.to_h; ENV['A'] = 'b'; ENV.delete('QUERY_STRING'); system('env | grep -v ^_= | sort'); exec('/bin/sh', '-c', 'echo $A')"),
    ("body", "p STDIN.read(5), $stdin.read, STDIN.eof?, ENV['CONTENT_LENGTH']"),
    ("gets", "while line = gets; p line, $.; end"),
    ("data", "p DATA.gets, DATA.pos, DATA.read, DATA.lineno\n__END__\none\ntwo\n"),
    ("exit", "at_exit { puts 'first' }\nat_exit { puts $!.status }\nEND { puts 'END' }\nBEGIN { puts 'BEGIN' }\nexit 7"),
    ("exit!", "print 'lost'; exit! 3"),
    ("abort", "print 'x'; abort 'closed'"),
    ("exception", "def f(x) = x / 0\nputs 'before'\nf(1)"),
    ("cause", "begin; Integer('x'); rescue => e; raise KeyError, 'no'; end"),
    ("warning", "#!/usr/bin/ruby -w\nwarn 'careful'; warn 'here', uplevel: 0; p $VERBOSE"),
    ("no RUBYOPT", "#!/usr/bin/ruby --disable=rubyopt\nputs 'x'"),
    ("env", "#!/usr/bin/env ruby\nputs $0"),
    ("fork", "$stdout.sync = true; pid = fork { puts 'child'; exit 5 }; Process.wait pid; p $?.exitstatus, pid != $$, `echo back`, $?.success?"),
    ("popen", "puts IO.popen(['echo', 'x'], &:read); r, w = IO.pipe; w << 'y'; w.close; p r.read; require 'open3'; p Open3.capture2('cat', stdin_data: 'z')[0]"),
    ("threads", "p Thread.list.size; q = Queue.new; t = Thread.new { sleep 0.01; q << 1 }; p q.pop, t.join.status; require 'timeout'; begin; Timeout.timeout(0.05) { sleep 20 }; rescue Timeout::Error => e; p e; end"),
    ("signals", "trap('USR1') { puts 'got' }; Process.kill 'USR1', $$; sleep 0.05; $stdout.flush; Process.kill 'TERM', $$; sleep 20"),
    ("encodings", "p Encoding.default_external, Encoding.default_internal, STDIN.external_encoding, __ENCODING__, Encoding.find('locale'), Encoding.find('filesystem'); puts 0xe9.chr('UTF-8')"),
    ("process", "p Dir.pwd, File.umask, Process.getpgrp == $$, Process.pid == $$, Process.clock_gettime(Process::CLOCK_REALTIME) > 0, GC.enable, GC.stress"),
    ("libraries", "require 'json'; require 'erb'; require 'set'; require 'time'; puts JSON.generate({ a: 1 }), ERB.new('<%= 1 + 1 %>').result, Time.at(0).utc.iso8601"),
    ("finalizer", "ObjectSpace.define_finalizer(Object.new, proc { puts 'gone' }); open('/dev/stderr', 'w') { |f| f << 'x' }; $keep = open('/dev/stderr', 'w'); $keep << 'kept'"),
    ("seed", "srand 42; p rand(1000), Random.new(7).rand(1000), srand"),
    ("fibers", "e = Enumerator.new { |y| y << 1; y << 2 }; p e.next, e.next; p Fiber.new { 3 }.resume; GC.start"),
];

#[test]
fn a_script_is_as_in_a_cold_start() {
    let failed: Vec<&str> = SCRIPTS
        .iter()
        .filter(|(name, text)| std::panic::catch_unwind(|| same(name, text)).is_err())
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn features_loaded_at_run_time_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let text = "print defined?(JSON) ? 'ahead' : 'late'; require 'json'; at_exit { require 'set' }; print JSON.generate([1])";
    let path = ruby(folder.path(), text);
    let first = Warm::load(&path).answer(&VARS, BODY, true);
    assert_eq!(first.out, "late[1]");
    assert!(first.learned.contains("/json.rb\n"), "{}", first.learned);
    let warm = Warm::load_with(&path, &format!("{}/no/such.rb\n", first.learned));
    assert_eq!(warm.loaded.obstacle, None);
    let second = warm.answer(&VARS, BODY, true);
    assert_eq!(
        (second.out.as_str(), second.learned.as_str()),
        ("ahead[1]", "")
    );
}

/// If a feature reads a variable that a request sets, each child loads the feature itself. So do
/// features that require such a feature; other features are preloaded. If a feature is loaded before the
/// script, it is an obstacle instead.
#[test]
fn variables_that_are_read_too_early_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        ("ENV['QUERY_STRING']", "late"),
        ("ENV.fetch('HTTP_HOST', 'none')", "late"),
        ("ENV.key?('REQUEST_METHOD')", "late"),
        ("ENV.to_h.size", "late"),
        ("ENV.keys.size", "late"),
        ("`echo $QUERY_STRING`", "late"),
        (
            "[ENV['PATH'], ENV['HOME'], ENV['SERVER_SOFTWARE']]",
            "ahead",
        ),
        ("ENV['OURS'] = 'x'", "late"),
    ];
    for (n, (value, when)) in rows.iter().enumerate() {
        let own = folder.path().join(format!("own{n}.rb"));
        std::fs::write(&own, format!("$own = {value}\n")).unwrap();
        let outer = folder.path().join(format!("outer{n}.rb"));
        let text = format!(
            "$outer = $own.inspect; require '{}'; require 'set'\n",
            own.display()
        );
        std::fs::write(&outer, text).unwrap();
        let text = format!(
            "print $outer ? 'ahead' : 'late', defined?(JSON) ? ' ahead' : ' late'; require '{}'; require 'json'; p $own, ENV.to_h",
            outer.display()
        );
        let path = ruby(folder.path(), &text);
        let library = Warm::load(&path).answer(&VARS, BODY, true).learned;
        let json: Vec<&str> = library.lines().filter(|l| l.contains("/json")).collect();
        let learned = format!(
            "{}\n{}\n{}\n",
            own.display(),
            outer.display(),
            json.join("\n")
        );
        let warm = Warm::load_with(&path, &learned);
        assert_eq!(warm.loaded.obstacle, None, "{value}");
        let out = warm.answer(&VARS, BODY, false).out;
        let mut expected = cold(&path).0;
        assert!(expected.starts_with("late late"), "{expected}");
        expected.replace_range(..9, &format!("{when} ahead"));
        assert_eq!(out, expected, "{value}");
        let option = format!("#!/usr/bin/ruby -r{}\nputs 1", own.display());
        let obstacle = Warm::load(&ruby(folder.path(), &option))
            .loaded
            .obstacle
            .unwrap_or_default();
        if value.starts_with("ENV['Q") {
            assert!(
                obstacle.starts_with("reads QUERY_STRING while loading, "),
                "{obstacle:?}"
            );
        }
    }
}
