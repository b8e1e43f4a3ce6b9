//! Small modules, written as text.

/// Returns a command: `start` is the body of `_start`, `more` follows it. `$say` prints bytes of memory, and `$head` prints a
/// response head. `$take` reads up to 32768 bytes to 4096 and returns their number. `$exit`, and the texts "yes\n" at 1024
/// and "no\n" at 1040, are also available.
pub fn command(start: &str, more: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 100) "Content-Type: text/plain\n\n")
  (data (i32.const 1024) "yes\n")
  (data (i32.const 1040) "no\n")
  {more}
  (func $say (param $at i32) (param $length i32)
    (loop $again
      (i32.store (i32.const 0) (local.get $at))
      (i32.store (i32.const 4) (local.get $length))
      (if (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)) (then (return)))
      (local.set $at (i32.add (local.get $at) (i32.load (i32.const 8))))
      (local.set $length (i32.sub (local.get $length) (i32.load (i32.const 8))))
      (br_if $again (local.get $length))))
  (func $head (call $say (i32.const 100) (i32.const 26)))
  (func $verdict (param i32)
    (if (local.get 0) (then (call $say (i32.const 1024) (i32.const 4)))
      (else (call $say (i32.const 1040) (i32.const 3)))))
  (func $take (result i32)
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.const 32768))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.load (i32.const 8)))
  (func (export "_start") {start}))"#
    );
    wat::parse_str(text).unwrap()
}

/// Prints "yes".
pub fn hello() -> Vec<u8> {
    command("(call $head) (call $verdict (i32.const 1))", "")
}

/// Prints `text`, of at most 60 bytes.
pub fn prints(text: &str) -> Vec<u8> {
    let start = format!(
        "(call $head) (call $say (i32.const 2048) (i32.const {}))",
        text.len()
    );
    command(&start, &format!("(data (i32.const 2048) \"{text}\")"))
}

/// Prints its environment, each variable with its NUL.
pub fn environment() -> Vec<u8> {
    command(
        "(drop (call $sizes (i32.const 16) (i32.const 20)))
         (drop (call $environ (i32.const 4096) (i32.const 16384)))
         (call $head) (call $say (i32.const 16384) (i32.load (i32.const 20)))",
        "",
    )
}

/// Sends its input back as it comes.
pub fn echo() -> Vec<u8> {
    command(
        "(local $n i32) (call $head)
         (loop $again
           (local.set $n (call $take))
           (if (local.get $n) (then (call $say (i32.const 4096) (local.get $n)) (br $again))))",
        "",
    )
}

/// Prints "begun" to standard error, reads its input to the end, and prints `last` there.
pub fn says_at_the_end(last: &str) -> Vec<u8> {
    let log = |at: u32, length: usize| {
        format!(
            "(i32.store (i32.const 0) (i32.const {at})) (i32.store (i32.const 4) (i32.const {length}))
             (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))"
        )
    };
    let start = format!(
        "{} (loop $again (br_if $again (call $take))) {}",
        log(2048, 6),
        log(2056, last.len())
    );
    let last = last.escape_default();
    let texts = format!("(data (i32.const 2048) \"begun\\n\\00\\00{last}\")");
    command(&start, &texts)
}

/// Prints `first` to standard error, and sleeps for an hour inside a host call, on a clock's subscription.
pub fn sleeps(first: &str) -> Vec<u8> {
    let start = format!(
        "(i32.store (i32.const 0) (i32.const 2048)) (i32.store (i32.const 4) (i32.const {}))
         (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
         (i64.store (i32.const 16) (i64.const 0)) (i32.store8 (i32.const 24) (i32.const 0))
         (i32.store (i32.const 32) (i32.const 1)) (i64.store (i32.const 40) (i64.const 3600000000000))
         (i64.store (i32.const 48) (i64.const 0)) (i32.store16 (i32.const 56) (i32.const 0))
         (drop (call $poll (i32.const 16) (i32.const 4096) (i32.const 1) (i32.const 80)))",
        first.len()
    );
    let first = first.escape_default();
    command(&start, &format!("(data (i32.const 2048) \"{first}\")"))
}

/// Calls path_open for reading, below the first preopened folder. Leaves 0 on success.
fn open(length: usize) -> String {
    format!(
        "(call $open (i32.const 3) (i32.const 1) (i32.const 2048) (i32.const {length}) (i32.const 0)
           (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 12))"
    )
}

/// Prints whether `path` can be opened for reading below the first preopened folder.
pub fn opens(path: &str) -> Vec<u8> {
    let start = format!(
        "(call $head) (call $verdict (i32.eqz {}))",
        open(path.len())
    );
    command(&start, &format!("(data (i32.const 2048) \"{path}\")"))
}

/// Opens `path` again and again, and closes nothing.
pub fn opens_endlessly(path: &str) -> Vec<u8> {
    let start = format!("(loop $again (drop {}) (br $again))", open(path.len()));
    command(&start, &format!("(data (i32.const 2048) \"{path}\")"))
}

/// Prints whether `path` can be created and written below the first preopened folder.
pub fn writes(path: &str) -> Vec<u8> {
    const CREATE: u32 = 1;
    const WRITE: u32 = 1 << 6;
    let start = format!(
        "(call $head) (call $verdict (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 2048) (i32.const {})
           (i32.const {CREATE}) (i64.const {WRITE}) (i64.const 0) (i32.const 0) (i32.const 12))))",
        path.len()
    );
    command(&start, &format!("(data (i32.const 2048) \"{path}\")"))
}
