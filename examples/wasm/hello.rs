//! Says hello: rustc -O --target wasm32-wasip1 -o hello-rust.wasm hello.rs

fn main() {
    print!("Content-Type: text/plain; charset=utf-8\n\n");
    println!("Hello from Rust, in WebAssembly.");
    if let Ok(name) = std::env::var("QUERY_STRING") {
        if !name.is_empty() {
            println!("You asked for {name:?}.");
        }
    }
}
