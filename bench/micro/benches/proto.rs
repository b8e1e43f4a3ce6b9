//! Times of the pure functions: `cargo bench` in bench/micro.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use galgo_micro::{
    BROWSER, CURL, Env, Null, REPLY, TARGETS, chunks, decode, fields64, head, reply, reply20,
    variables,
};
use galgo_proto::target::Target;
use galgo_spawn::EnvBlock;

fn request_head(c: &mut Criterion) {
    let many = fields64();
    let mut group = c.benchmark_group("request head");
    for (name, text) in [("curl", CURL), ("browser", BROWSER), ("64 fields", &many)] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| head(black_box(text.as_bytes()))));
    }
}

fn target(c: &mut Criterion) {
    let mut group = c.benchmark_group("target");
    for (name, raw) in TARGETS {
        group.bench_function(name, |b| {
            b.iter(|| Target::parse(black_box(raw.as_bytes()), 16 << 10));
        });
    }
}

fn chunked(c: &mut Criterion) {
    let mut group = c.benchmark_group("chunked body of 64 KiB");
    for (name, each) in [("chunks of 16", 16), ("chunks of 4096", 4096)] {
        let text = chunks(64 << 10, each);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| decode(black_box(&text))));
    }
}

fn vars(c: &mut Criterion) {
    let mut group = c.benchmark_group("variables");
    for (name, text) in [("curl", CURL), ("browser", BROWSER)] {
        let head = head(text.as_bytes());
        group.bench_function(format!("{name} into an environment"), |b| {
            b.iter(|| {
                let mut env = Env(EnvBlock::default());
                variables(black_box(&head), &mut env);
                env.0
            });
        });
        group.bench_function(format!("{name} into nothing"), |b| {
            b.iter(|| {
                let mut null = Null(0);
                variables(black_box(&head), &mut null);
                null.0
            });
        });
    }
}

fn response_head(c: &mut Criterion) {
    let many = reply20();
    let mut group = c.benchmark_group("response head");
    for (name, text) in [("one field", REPLY), ("20 fields", &many)] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| reply(black_box(text.as_bytes()))));
    }
}

criterion_group!(proto, request_head, target, chunked, vars, response_head);
criterion_main!(proto);
