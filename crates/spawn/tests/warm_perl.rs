//! Perl scripts, stopped before their first statement: the same as cold, byte for byte.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use galgo_testkit::file::script;
use scene::warm::Warm;
use std::{fs, io::Read, path::Path};

/// Result of a run: standard output, standard error, and status.
type Run = (String, String, Status);

const VARS: [(&str, &str); 3] = [
    ("QUERY_STRING", "a=1&b=two+words"),
    ("REQUEST_METHOD", "POST"),
    ("CONTENT_LENGTH", "11"),
];
const BODY: &[u8] = b"name=x&y=%41";

fn cold(path: &Path) -> Run {
    scene::warm::cold(path, &VARS, BODY)
}

fn warm(warm: &Warm) -> Run {
    let answer = warm.answer(&VARS, BODY, false);
    (answer.out, answer.err, answer.exit.status)
}

/// Loads the script once and makes it answer twice.
fn same(name: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("Own.pm"),
        "package Own; our $n = 5; sub n { $n++ } 1;\n",
    )
    .unwrap();
    let path = script(folder.path(), "script.pl", text);
    let expected = cold(&path);
    let template = Warm::load(&path);
    assert_eq!(template.loaded.obstacle, None, "{name}");
    for round in 0..2 {
        assert_eq!(warm(&template), expected, "{name}, round {round}");
    }
}

const SCRIPTS: &[(&str, &str)] = &[
    (
        "environment changed early",
        "#!/usr/bin/perl\nBEGIN { $ENV{PATH} = '/bin'; $ENV{NEW} = 1; } $ENV{REQUEST_METHOD} = 'PUT'; delete $ENV{CONTENT_LENGTH}; print map { qq($_=$ENV{$_}\n) } sort keys %ENV; print `env | sort | grep -v ^_=`;",
    ),
    (
        "environment",
        "#!/usr/bin/perl\nprint map { qq($_=$ENV{$_}\\n) } sort keys %ENV; print `env | sort | grep -v ^_=`;",
    ),
    (
        "names",
        "#!/usr/bin/perl -w\nprint join '|', $0, @ARGV, __FILE__, __LINE__, $^X, \"@INC\", $^W, scalar(%INC) ? 1 : 0, caller() ? 1 : 0;",
    ),
    (
        "no module of ours",
        "#!/usr/bin/perl\nprint join ',', sort keys %INC;",
    ),
    (
        "body",
        "#!/usr/bin/perl\nread STDIN, my $b, 5; print $b; print <STDIN>; print eof(STDIN) ? 'end' : 'more';",
    ),
    (
        "data",
        "#!/usr/bin/perl\nuse strict; my @l = <DATA>; print @l, scalar @l, tell(DATA);\n__END__\none\ntwo\n",
    ),
    (
        "data, in part",
        "#!/usr/bin/perl\nprint scalar <DATA>; seek DATA, 0, 0; print scalar <DATA>;\n__DATA__\none\ntwo\n",
    ),
    (
        "order of blocks",
        "#!/usr/bin/perl\nBEGIN { push @o, 'begin' } UNITCHECK { push @o, 'unit' } CHECK { push @o, 'check' } INIT { push @o, 'init' } END { print 'end1' } END { print \"@o \", 'end2 ' } push @o, 'run';",
    ),
    (
        "exit",
        "#!/usr/bin/perl\nEND { print \"status $?\"; } exit 7;",
    ),
    (
        "exit from END",
        "#!/usr/bin/perl\nEND { $? = 9 } print 'x';",
    ),
    (
        "die",
        "#!/usr/bin/perl\nuse strict;\nsub f { die 'here' }\nf(1);",
    ),
    (
        "die with a number",
        "#!/usr/bin/perl\n$! = 0; $? = 0; die { a => 1 } if 0; $! = 13; die qq(closed\\n);",
    ),
    (
        "warn",
        "#!/usr/bin/perl -w\nmy $x; print 'a' . $x; warn 'careful'; warn qq(plain\\n);",
    ),
    (
        "signal",
        "#!/usr/bin/perl\n$| = 1; print 'before'; kill 9, $$;",
    ),
    (
        "destructors",
        "#!/usr/bin/perl\npackage D; sub new { bless {} } sub DESTROY { print 'gone;' } package main; our $d = D->new; my $e = D->new; undef $e; print 'end;';",
    ),
    (
        "handles",
        "#!/usr/bin/perl\nprint join ',', fileno(STDIN), fileno(STDOUT), fileno(STDERR), (PerlIO::get_layers(STDOUT)), $|, -t STDIN ? 1 : 0, -p STDOUT ? 1 : 0; binmode STDOUT, ':utf8'; print chr 0x263a;",
    ),
    (
        "layers by option",
        "#!/usr/bin/perl -CS\nprint chr 0x263a; print join ',', PerlIO::get_layers(STDOUT);",
    ),
    (
        "order of output",
        "#!/usr/bin/perl\nprint 'a'; system 'echo b'; $| = 1; print 'c'; system 'echo d'; print 'e';",
    ),
    (
        "processes",
        "#!/usr/bin/perl\n$| = 1; my $pid = fork; if (!$pid) { print 'child '; exit 3 } waitpid $pid, 0; print $? >> 8; open my $p, '-|', 'echo piped' or die; print <$p>; close $p; print $?; exec 'echo', 'executed';",
    ),
    (
        "own process",
        "#!/usr/bin/perl\nprint $$ == getpgrp() ? 'leads' : 'follows', getppid() > 1 ? 1 : 0, $$ > 1; use Cwd; print getcwd(), umask;",
    ),
    (
        "signals",
        "#!/usr/bin/perl\nuse POSIX; print join ',', map { $SIG{$_} // 'none' } qw(PIPE TERM INT CHLD); $SIG{USR1} = sub { print 'caught' }; kill USR1 => $$; my $s = POSIX::SigSet->new; sigprocmask(SIG_BLOCK, undef, $s) ; print $s->ismember(15);",
    ),
    (
        "sockets",
        "#!/usr/bin/perl\nuse IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die; my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $l->sockport); print {$c} 'hi'; close $c; print $l->accept->getline;",
    ),
    (
        "CGI.pm",
        "#!/usr/bin/perl\nuse strict; use CGI; my $q = CGI->new; print $q->header('text/plain'), join ',', map { \"$_=\" . $q->param($_) } sort $q->param;",
    ),
    (
        "findbin",
        "#!/usr/bin/perl\nuse FindBin; use lib $FindBin::Bin; use Own; print \"$FindBin::Bin $FindBin::Script \", Own::n(), Own::n();",
    ),
    (
        "required later",
        "#!/usr/bin/perl\nrequire POSIX; require File::Temp; print POSIX::floor(3.7), defined &File::Temp::tempfile;",
    ),
    (
        "locale",
        "#!/usr/bin/perl\nuse POSIX qw(setlocale LC_ALL); use locale; print setlocale(LC_ALL), ' ', lc 'ABC', sprintf '%.1f', 1.5;",
    ),
    (
        "time",
        "#!/usr/bin/perl\nprint time - $^T < 2 ? 'now' : 'then';",
    ),
    (
        "string eval",
        "#!/usr/bin/perl\nuse strict; no strict 'refs'; my $r = eval '1 +'; print $@; eval { die 'x' }; print $@; print eval { ${'galgone'} // 'unset' };",
    ),
    (
        "unstrict",
        "#!/usr/bin/perl\n$free = 5; @list = (1, 2); print \"$free @list\"; print STDOUT (caller(0))[3] // 'main';",
    ),
    (
        "sprintf and sort",
        "#!/usr/bin/perl\nuse strict; use warnings; my %h = (b => 2, a => 1); print map { \"$_$h{$_}\" } sort { $h{$a} <=> $h{$b} } keys %h; format STDOUT =\n@<<< @>>>\n'ab', 'cd'\n.\nwrite;",
    ),
    (
        "closed output",
        "#!/usr/bin/perl\nclose STDOUT; print 'nothing' or warn 'closed'; exit 4;",
    ),
];

#[test]
fn a_warm_script_is_the_same_as_a_cold_one() {
    for (name, text) in SCRIPTS {
        same(name, text);
    }
}

#[test]
fn nothing_of_a_request_is_left_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/usr/bin/perl\nour ($n, %seen); use Own; print \"$n|\", scalar(%seen) ? 1 : 0, '|', umask, '|', Own::n(), '|', ref $SIG{TERM}, '|', ($ENV{LEFT} // ''), \"|@ARGV|$0|\", `pwd`; \
        $n = 5; $seen{x} = 1; umask 0; chdir '/'; $SIG{TERM} = sub { }; $ENV{LEFT} = 1; push @ARGV, 'x'; $0 = 'other'; $Own::n = 99; push @INC, '/nowhere'; *Own::n = sub { 'patched' };";
    fs::write(
        folder.path().join("Own.pm"),
        "package Own; our $n = 5; sub n { $n++ } 1;\n",
    )
    .unwrap();
    let text = text.replace(
        "use Own;",
        &format!("use lib '{}'; use Own;", folder.path().display()),
    );
    let template = Warm::load(&script(folder.path(), "s.pl", &text));
    let first = warm(&template);
    assert!(first.0.starts_with("|0|"), "{first:?}");
    for _ in 0..3 {
        assert_eq!(warm(&template), first);
    }
}

#[test]
fn modules_that_a_child_loads_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(
        folder.path(),
        "s.pl",
        "#!/usr/bin/perl\nprint exists $INC{'Text/Wrap.pm'} ? 'loaded' : 'new'; require Text::Wrap; END { print ' end' } exit 2;",
    );
    let template = Warm::load(&path);
    let answer = template.answer(&[], b"", true);
    assert_eq!(
        (answer.out.as_str(), answer.exit.status),
        ("new end", Status::Code(2))
    );
    let mut learned: Vec<_> = answer.learned.lines().collect();
    learned.sort_unstable();
    let wrap = |line: &&str| line.starts_with("Text/Wrap.pm\t/");
    assert!(learned.iter().any(wrap), "{learned:?}");
    let taught = Warm::load_with(&path, &answer.learned);
    assert_eq!(taught.get(&[]).out, "loaded end");
    assert!(
        taught
            .loaded
            .files
            .iter()
            .any(|f| f.ends_with("Text/Wrap.pm"))
    );
}

#[test]
fn a_driver_of_dbi_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/usr/bin/perl\nuse strict; use DBI; my $db = DBI->connect('dbi:SQLite:dbname=x.db', '', '', { RaiseError => 1 }); $db->do('create table if not exists t (n)'); $db->do('insert into t values (1)'); print $db->selectrow_array('select count(*) from t');";
    let path = script(folder.path(), "s.pl", text);
    let first = Warm::load(&path).answer(&[], b"", true);
    assert_eq!(first.out, "1", "{}", first.err);
    assert!(first.learned.contains("DBD/SQLite.pm"), "{}", first.learned);
    let taught = Warm::load_with(&path, &first.learned);
    assert_eq!(taught.loaded.obstacle, None);
    assert_eq!(taught.get(&[]).out, "2");
    assert_eq!(taught.get(&[]).out, "3");
}

/// Scripts that use modules which Perl loads late. A template that has learned them preloads them,
/// and nothing else changes.
#[test]
fn a_script_with_learned_modules_is_the_same_as_a_cold_one() {
    let scripts = [
        "use DBI; print defined $DBI::lasth ? 1 : 0, $DBI::err // 'none', $DBI::errstr // 'none'; my $d = DBI->connect('dbi:SQLite:dbname=:memory:', '', '', { PrintError => 0 }); my $h = $d->{Driver}; print join '|', map { $_ // 'undef' } $h->{Name}, $h->{Kids}, $h->{ActiveKids}, $h->{Executed}, $h->{ErrCount}, $d->{AutoInactiveDestroy}, ref $h, ref $d, $d->do('select nothing'), $d->errstr, $DBI::err;",
        "use DBI; $SIG{__WARN__} = sub { print 'warned: ', @_ }; $SIG{__DIE__} = sub { print 'died: ', @_ }; my $d = DBI->connect('dbi:SQLite:dbname=/nowhere/x.db', '', '', { RaiseError => 1 });",
        "use DBI; DBI->install_driver('SQLite'); print join ',', sort keys %{{DBI->installed_drivers}}; my $d = DBI->connect('dbi:SQLite:dbname=:memory:'); if (!fork) { $d->{AutoInactiveDestroy} = 1; exit } wait; print $d->selectrow_array('select 7');",
        "binmode STDOUT, ':encoding(UTF-8)'; print chr 0x263a; require Encode; Encode::define_alias('UTF-8' => 'iso-8859-1'); open my $f, '>:encoding(UTF-8)', \\my $text; print {$f} chr 233; close $f; print length $text, $PerlIO::encoding::fallback;",
        "binmode STDOUT, ':encoding(nonsense)' or print 'no such layer'; print \"$!\", fileno(STDOUT); open my $f, '<', '/dev/null'; print fileno $f;",
    ];
    for text in scripts {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "s.pl", format!("#!/usr/bin/perl\n{text}\n"));
        let learned = Warm::load(&path).answer(&VARS, BODY, true).learned;
        assert!(learned.contains(".pm"), "{text}");
        let taught = Warm::load_with(&path, &learned);
        assert_eq!(taught.loaded.obstacle, None, "{text}");
        assert_eq!(warm(&taught), cold(&path), "{text}");
    }
}

#[test]
fn sqlite_draws_other_numbers_in_each_child() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/usr/bin/perl\nuse DBI; print join ' ', DBI->connect('dbi:SQLite:dbname=:memory:')->selectrow_array('select random(), hex(randomblob(16))');";
    let path = script(folder.path(), "s.pl", text);
    let learned = Warm::load(&path).answer(&[], b"", true).learned;
    let taught = Warm::load_with(&path, &learned);
    assert_ne!(taught.get(&[]).out, taught.get(&[]).out);
}

const WHOLE: &str = "its whole environment";

/// Statements that run while a program loads, each with the variable that the statement depends on.
const EARLY: [(&str, Option<&str>); 19] = [
    (
        "BEGIN { our $m = $ENV{REQUEST_METHOD} }",
        Some("REQUEST_METHOD"),
    ),
    (
        "use constant ASKED => $ENV{QUERY_STRING} // 'none';",
        Some("QUERY_STRING"),
    ),
    (
        "BEGIN { our $h = exists $ENV{HTTP_HOST} ? 1 : 0 }",
        Some("HTTP_HOST"),
    ),
    (
        "BEGIN { our ($a, $b) = @ENV{qw(PATH SCRIPT_NAME)} }",
        Some("SCRIPT_NAME"),
    ),
    (
        "BEGIN { my $n = 'PATH_' . 'INFO'; our $p = $ENV{$n} }",
        Some("PATH_INFO"),
    ),
    ("use lib '.'; use Early;", Some("REMOTE_ADDR")),
    (
        "BEGIN { our $p = $ENV{PATH}; our $q = $ENV{MOD_PERL}; our $r = $ENV{SERVER_SOFTWARE} }",
        None,
    ),
    (
        "BEGIN { $ENV{QUERY_STRING} = 'x'; delete $ENV{HTTP_HOST}; local $ENV{LANG} = 'C'; our $n = %ENV }",
        None,
    ),
    ("BEGIN { our %saved = %ENV }", Some(WHOLE)),
    ("BEGIN { our $saved = {%ENV} }", Some(WHOLE)),
    ("BEGIN { our @names = keys %ENV }", Some(WHOLE)),
    ("BEGIN { our @values = values %ENV }", Some(WHOLE)),
    ("BEGIN { our ($name) = each %ENV }", Some(WHOLE)),
    ("BEGIN { our @pairs = map { $_ } %ENV }", Some(WHOLE)),
    ("use lib '.'; use Whole;", Some(WHOLE)),
    ("our %saved = %ENV;", None),
    (
        "BEGIN { $ENV{SHOWN} = 'yes'; `echo \\$SHOWN` eq \"yes\\n\" or die }",
        None,
    ),
    ("use CGI (); use DBI;", None),
    ("our $m = $ENV{REQUEST_METHOD};", None),
];

/// A script that reads a request's variable before it runs is reported with the name of the
/// variable.
#[test]
fn variables_that_are_read_too_early_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("Whole.pm"),
        "package Whole; our %saved = %ENV; 1;",
    )
    .unwrap();
    fs::write(
        folder.path().join("Early.pm"),
        "package Early; our $who = $ENV{REMOTE_ADDR}; 1;",
    )
    .unwrap();
    for (n, (does, name)) in EARLY.iter().enumerate() {
        let text = format!(
            "#!/usr/bin/perl\n{does}\nprint $ENV{{REQUEST_METHOD}}, `echo \\$REQUEST_METHOD`;\n"
        );
        let warm = Warm::load(&script(folder.path(), &format!("s{n}.pl"), &text));
        let obstacle = warm.loaded.obstacle.clone().unwrap_or_default();
        match name {
            Some(name) => assert!(
                obstacle.starts_with(&format!("reads {name} while loading")),
                "{does}: {obstacle:?}"
            ),
            None => {
                assert_eq!(obstacle, "", "{does}");
                assert_eq!(
                    warm.get(&[("REQUEST_METHOD", "GET")]).out,
                    "GETGET\n",
                    "{does}"
                );
            }
        }
    }
}

#[test]
fn what_is_printed_while_loading_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(
        folder.path(),
        "s.pl",
        "#!/usr/bin/perl\nBEGIN { print 'early' } print 'late';",
    );
    let mut template = Warm::load(&path);
    let mut early = [0; 5];
    template.stdout.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
}
