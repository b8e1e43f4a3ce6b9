//! Things of other clients and programs: descriptors, answers, requests.

use crate::harness::{list, new_site};
use galgo_testkit::{Client, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicUsize, Ordering};

list![
    descriptors_of_a_program,
    every_answer_goes_to_who_asked,
    error_pages_hold_nothing_of_the_request,
];

fn descriptors_of_a_program() {
    let server = new_site().start();
    let idle: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            client.reply();
            client
        })
        .collect();
    let mut busy = server.connect();
    busy.get("/cgi-bin/t?head&touch=busy&hang");
    server.wait_for("busy");
    let fds = "/cgi-bin/t?head&fds";
    assert_eq!(server.get(fds).text(), "0 1 2\n");
    // The same holds after the logs were reopened.
    std::fs::rename(server.path("access.log"), server.path("old")).unwrap();
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    wait_until("the new log", || server.path("access.log").exists());
    assert_eq!(server.get(fds).text(), "0 1 2\n");
    let post = format!("POST {fds} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(server.ask(post).text(), "0 1 2\n");
    drop(idle);
}

fn every_answer_goes_to_who_asked() {
    const CLIENTS: usize = 8;
    const EACH: usize = 250;
    let echo = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$QUERY_STRING\"\n";
    let local = "#!/bin/sh\nprintf 'Location: /cgi-bin/echo?%s\\n\\n' \"$QUERY_STRING\"\n";
    let redirect = "#!/bin/sh\nprintf 'Location: http://localhost/?%s\\n\\n' \"$QUERY_STRING\"\n";
    let body = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; cat\n";
    let server = new_site()
        .file("cgi-bin/echo", echo, 0o755)
        .file("cgi-bin/local", local, 0o755)
        .file("cgi-bin/redirect", redirect, 0o755)
        .file("cgi-bin/body", body, 0o755)
        .start();
    let checked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for who in 0..CLIENTS {
            let (server, checked) = (&server, &checked);
            scope.spawn(move || {
                let mut client = server.connect();
                for n in 0..EACH {
                    let nonce = format!("nonce-{who}-{n}");
                    // Spreads the kinds of requests in a pattern that other clients do not share.
                    let dice = (who * 7919 + n * 104_729) % 23;
                    let name = ["echo", "local", "redirect"][dice % 3];
                    if dice > 20 {
                        client.get(&format!("/cgi-bin/{name}?{nonce}"));
                        std::mem::replace(&mut client, server.connect()).reset();
                        continue;
                    }
                    if dice > 15 {
                        client.post("/cgi-bin/body", nonce.as_bytes());
                        assert_eq!(client.reply().text(), nonce);
                    } else {
                        client.get(&format!("/cgi-bin/{name}?{nonce}"));
                        let reply = client.reply();
                        let said = match name {
                            "redirect" => reply.field("location").unwrap_or_default().to_owned(),
                            _ => reply.text(),
                        };
                        let wanted = match name {
                            "redirect" => format!("http://localhost/?{nonce}"),
                            _ => nonce,
                        };
                        assert_eq!(said, wanted);
                    }
                    checked.fetch_add(1, Ordering::Relaxed);
                    if dice == 7 {
                        client = server.connect();
                    }
                }
            });
        }
    });
    assert!(checked.into_inner() > CLIENTS * EACH * 8 / 10);
}

fn error_pages_hold_nothing_of_the_request() {
    let server = new_site()
        .file("cgi-bin/text", "", 0o644)
        .defaults("max_body = 10")
        .start();
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: canary.example\r\nX-Canary: canary\r\n{fields}\r\n")
    };
    for (status, request) in [
        (400, get("/canary#canary", "")),
        (400, get("/canary", "canary\r\n")),
        (400, get("/%00canary", "")),
        (403, get("/cgi-bin/text?canary", "")),
        (404, get("/canary?canary", "Cookie: canary\r\n")),
        (404, get("/cgi-bin/canary", "")),
        (404, get("/canary/", "")),
        (501, "CANARY /canary HTTP/1.1\r\nHost: canary.example\r\n\r\n".into()),
        (405, "TRACE /canary HTTP/1.1\r\nHost: canary.example\r\n\r\n".into()),
        (412, get("/file", "If-Match: \"canary\"\r\n")),
        (413, "POST /cgi-bin/t?canary HTTP/1.1\r\nHost: canary.example\r\nContent-Length: 99\r\n\r\ncanary".into()),
        (414, get(&format!("/canary{}", "a".repeat(20_000)), "")),
        (417, get("/canary", "Expect: canary\r\n")),
        (431, get("/canary", &"canary: canary\r\n".repeat(300))),
        (501, get("/canary", "Transfer-Encoding: canary\r\n")),
        (502, get("/cgi-bin/t?exit=1&canary", "")),
        (502, get("/cgi-bin/t?err=canary&out=canary", "")),
        (502, get("/cgi-bin/t?out=Status:%20canary%0a%0a", "")),
        (505, get("/canary", "").replace("HTTP/1.1", "HTTP/2.0")),
    ] {
        if status == 412 {
            std::fs::write(server.path("public/file"), "x").unwrap();
        }
        let reply = server.ask(&request);
        assert_eq!(reply.status, status, "{request}");
        let said = format!("{}{}", reply.head, reply.text());
        let lower = said.to_ascii_lowercase();
        assert!(!lower.contains("canary"), "{request}: {said}");
        let folder = server.site.folder().to_str().unwrap();
        assert!(!said.contains(folder) && !said.contains("/cgi-bin"), "{said}");
        // The page does hold the status, and the id of the request in the log.
        let id = said.split(">Request ").nth(1).unwrap().split('<').next().unwrap();
        assert_eq!(id.len(), 20, "{said}");
        wait_until("the id in the log", || server.access().iter().any(|l| l["id"] == id && l["status"] == status));
    }
}
