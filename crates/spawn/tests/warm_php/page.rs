//! A PHP script and its output.

use crate::scene::{
    self, Scene,
    warm::{Answer, Warm},
};
use galgo_spawn::{Status, template::Uses};
use galgo_testkit::file::script;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Makes a file old: opcache does not keep scripts that were changed a moment ago.
fn age(path: &Path) {
    let before = SystemTime::now() - Duration::from_secs(3600);
    File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(before))
        .unwrap();
}

/// Result of a run: standard output, standard error, and status.
pub(crate) type Run = (String, String, Status);

/// Settings that are the same on every machine.
pub(crate) const INI: &str =
    "display_errors = 1\nhtml_errors = 0\nlog_errors = 0\nvariables_order = EGPCS\n";

/// A script beside a php.ini of its own, and a program that makes php-cgi run the script.
pub(crate) struct Page {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) vars: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Page {
    pub(crate) fn new(text: &str, ini: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ini")).unwrap();
        fs::write(folder.path().join("ini/php.ini"), format!("{INI}{ini}\n")).unwrap();
        let path = script(folder.path(), "page.php", format!("<?php {text}"));
        let program = script(folder.path(), "program", "#!/usr/bin/php-cgi\n");
        age(&path);
        let mut page = Self {
            folder,
            path,
            program,
            vars: Vec::new(),
            body: Vec::new(),
        };
        let (ini, file) = (page.ini(), page.path.display().to_string());
        page.set("PHPRC", &ini);
        page.set("GATEWAY_INTERFACE", "CGI/1.1");
        page.set("SERVER_SOFTWARE", "galgo");
        page.set("REDIRECT_STATUS", "200");
        page.set("SCRIPT_FILENAME", &file);
        page.set("REQUEST_METHOD", "GET");
        page.set("QUERY_STRING", "");
        page
    }

    pub(crate) fn ini(&self) -> String {
        self.folder.path().join("ini").display().to_string()
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.vars.retain(|(n, _)| n != name);
        self.vars.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn posts(mut self, kind: &str, body: &[u8]) -> Self {
        self.set("REQUEST_METHOD", "POST");
        self.set("CONTENT_TYPE", kind);
        self.set("CONTENT_LENGTH", &body.len().to_string());
        self.body = body.to_vec();
        self
    }

    pub(crate) fn vars(&self) -> Vec<(&str, &str)> {
        let all = self.vars.iter();
        all.map(|(name, value)| (&**name, &**value)).collect()
    }

    pub(crate) fn cold(&self) -> Run {
        scene::warm::cold(&self.program, &self.vars(), &self.body)
    }

    pub(crate) fn load(&self) -> Warm {
        self.load_with("")
    }

    /// Loads a template with these scripts compiled ahead, one a line.
    pub(crate) fn load_with(&self, scripts: &str) -> Warm {
        let mut scene = Scene::new();
        for (name, value) in &self.vars[..3] {
            scene.env.set_variable(name.as_bytes(), value.as_bytes());
        }
        Warm::load_in(scene, Uses::Many, &self.program, scripts)
    }

    pub(crate) fn ask(&self, warm: &Warm) -> Run {
        seen(warm.answer(&self.vars(), &self.body, false))
    }

    /// Writes an old script beside the page's script.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        age(&path);
        path
    }

    /// Returns the scripts that a child reports to have run.
    pub(crate) fn told(&self, warm: &Warm) -> String {
        warm.answer(&self.vars(), &self.body, true).learned
    }

    /// Checks that children show the same as a cold start, with and without their scripts compiled
    /// ahead.
    pub(crate) fn is_same(&self, name: &str) {
        let scripts = self.is_same_uncompiled(name);
        self.is_same_with(&scripts, &format!("{name}, compiled"));
    }

    /// Checks that children show the same as a cold start while nothing is compiled. Returns the
    /// scripts that they run.
    pub(crate) fn is_same_uncompiled(&self, name: &str) -> String {
        let warm = self.is_same_with("", name);
        self.told(&warm)
    }

    fn is_same_with(&self, scripts: &str, name: &str) -> Warm {
        let expected = self.cold();
        let warm = self.load_with(scripts);
        assert_eq!(warm.loaded.obstacle, None, "{name}");
        for child in 1..=2 {
            assert_eq!(self.ask(&warm), expected, "{name}, child {child}");
        }
        warm
    }
}

pub(crate) fn seen(answer: Answer) -> Run {
    (answer.out, answer.err, answer.exit.status)
}

/// Returns the last line of a script's output.
pub(crate) fn last(run: &Run) -> &str {
    run.0.lines().next_back().unwrap_or_default()
}
