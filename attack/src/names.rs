// Looks up a host name and answers with the error: a component for a route with `network = true`.
use std::net::ToSocketAddrs;

fn main() {
    println!("Content-Type: text/plain\n");
    match ("silent.example.org", 80).to_socket_addrs() {
        Ok(found) => println!("{} addresses", found.count()),
        Err(e) => println!("{e}"),
    }
}
