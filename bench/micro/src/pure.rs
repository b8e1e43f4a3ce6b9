//! The pure part of a request, over and over, for a program that counts instructions:
//! `pure curl|browser N` reads the head, works the variables out, parses the response head.

use std::{env, hint::black_box, process::ExitCode};

use galgo_micro::{BROWSER, CURL, Env, REPLY, head, reply, variables};
use galgo_spawn::EnvBlock;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (request, count) = match args.as_slice() {
        [kind, count] if kind == "curl" => (CURL, count.parse()),
        [kind, count] if kind == "browser" => (BROWSER, count.parse()),
        _ => return usage(),
    };
    let Ok(count) = count else { return usage() };
    for _ in 0..count {
        serve(black_box(request.as_bytes()));
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: pure curl|browser N");
    ExitCode::from(2)
}

fn serve(request: &[u8]) {
    let head = head(request);
    let mut env = Env(EnvBlock::default());
    variables(&head, &mut env);
    black_box(&env.0);
    black_box(reply(black_box(REPLY.as_bytes())));
}
