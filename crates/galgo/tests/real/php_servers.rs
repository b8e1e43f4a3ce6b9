//! The pages of the same folder, cold, warm, and from a pool of php-fpm behind nginx.

use std::path::Path;

use galgo_testkit::{Server, wait_until};

use crate::{
    curl::{Reply, curl},
    php_pool::Pool,
    site::{needed, new_site},
};

/// Reports in header fields how the page was started.
const HOW: &str = "<?php header('X-How: ' . (strpos(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=') === false ? 'cold' : 'warm')); \
    header('X-Compiled: ' . count(opcache_get_status()['scripts'] ?? []));";

/// Servers that serve the pages of the same folder.
pub(crate) struct Servers {
    /// Serves the pages twice, beneath `/cold/` and `/warm/`.
    pub(crate) galgo: Server,
    pub(crate) pool: Pool,
}

pub(crate) fn serve(folder: &Path, env: &[(&str, &str)], files: &[(&str, &str)]) -> Servers {
    needed("/usr/bin/php-cgi");
    let site = new_site();
    let ini = format!(
        "output_buffering = 4194304\nopcache.file_update_protection = 0\nauto_prepend_file = {}\nsession.save_path = {}\nsys_temp_dir = {}\n",
        site.path("how.php").display(),
        site.folder().display(),
        site.folder().display()
    );
    site.write("php.ini", ini);
    site.write("how.php", HOW);
    for (name, text) in files {
        site.write(name, text);
    }
    let folder = site.folder().join(folder);
    let ini = site.path("php.ini");
    let more = |(name, value): &(&str, &str)| format!(", {name} = \"{value}\"");
    let more: String = env.iter().map(more).collect();
    let route = |start: &str| {
        format!(
            "[[route]]\npath = \"/{start}/\"\ncgi = \"{}\"\nstart = \"{start}\"\nenv = {{ PHPRC = \"{}\"{more} }}\n",
            folder.display(),
            ini.display()
        )
    };
    let config = format!(
        "{}{}[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n",
        route("cold"),
        route("warm")
    );
    let pool = Pool::start(&folder, &ini, env);
    let galgo = site.config(&config).start();
    Servers { galgo, pool }
}

pub(crate) fn ask(servers: &Servers, start: &str, page: &str) -> Reply {
    get(&servers.galgo.url(&format!("/{start}/{page}")))
}

/// Asks by the same host name on all servers, because some pages contain the name.
fn get(url: &str) -> Reply {
    curl(&["-H", "Host: localhost", url])
}

/// Returns a page without the parts that vary: numbers, tokens, and its address.
pub(crate) fn lasting(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.body).replace("/warm/", "/cold/");
    let letter = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !letter(c)) {
        let name = word.trim_end_matches(|c: char| !letter(c));
        out.push_str(if varies(name) { "#" } else { word });
    }
    out
}

/// Whether a word is a number or a token. Among random tokens of 32 letters and digits, one in 280 has no digit, so
/// upper and lower case together also make a token.
fn varies(name: &str) -> bool {
    let digit = name.contains(|c: char| c.is_ascii_digit());
    let both_cases = name.contains(|c: char| c.is_ascii_uppercase())
        && name.contains(|c: char| c.is_ascii_lowercase());
    (digit && name.len() > 2) || (name.len() > 20 && (both_cases || name.contains(['+', '='])))
}

/// Whether a page came from a template that has at least `scripts` scripts compiled.
pub(crate) fn is_warm(reply: &Reply, scripts: usize) -> bool {
    reply.field("x-how") == "warm" && reply.field("x-compiled").parse::<usize>().unwrap() >= scripts
}

/// Checks that each page is the same cold, from the pool, and warm with at least the given number of scripts compiled.
#[track_caller]
pub(crate) fn is_same(servers: &Servers, pages: &[(&str, u16, usize)]) {
    for (page, status, scripts) in pages {
        let cold = ask(servers, "cold", page).is(*status);
        assert_eq!(cold.field("x-how"), "cold");
        let same = |other: &Reply| {
            assert_eq!(lasting(other), lasting(&cold), "{page}");
            assert_eq!(other.fields("content-type"), cold.fields("content-type"));
        };
        same(&get(&servers.pool.url(page)).is(*status));
        let ready = || {
            let warm = ask(servers, "warm", page).is(*status);
            same(&warm);
            is_warm(&warm, *scripts)
        };
        wait_until("a warm page whose scripts are compiled", ready);
    }
}

#[test]
fn tokens_vary_with_and_without_digits() {
    for token in [
        "1767225600",
        "OHKqdGzkNpqvwYEIdnJQYrGvZnFNavHp",
        "oTlXMdaHbOKTvNpXX7pKnNuQfmxDARuZ",
    ] {
        assert!(varies(token), "{token}");
    }
    for name in ["12", "lifetime", "DisplayName", "Loading"] {
        assert!(!varies(name), "{name}");
    }
}
