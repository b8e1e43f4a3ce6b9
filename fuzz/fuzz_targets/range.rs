//! Range and If-Range: what is to be sent lies within the representation and is bounded.
#![no_main]

use galgo_proto::{
    Fields,
    cond::Validators,
    h1::Method,
    range::{self, Ranges},
};
use libfuzzer_sys::fuzz_target;

const MOST: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((&size, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    let size = u64::from_le_bytes(size);
    let mut values = rest.split(|&b| b == b'\n');
    let mut fields = Fields::new();
    for name in ["Range", "If-Range"] {
        if let Some(value) = values.next().filter(|v| !v.is_empty()) {
            fields.push(name, value);
        }
    }
    let current = Validators {
        etag: Some("\"e\""),
        modified: None,
    };
    match range::evaluate(&Method::Get, &fields, current, size, MOST) {
        Ranges::Partial(parts) => {
            assert!(!parts.is_empty() && parts.len() <= MOST);
            assert!(parts.iter().all(|p| p.start < p.end && p.end <= size));
            let sum: u128 = parts.iter().map(|p| u128::from(p.end - p.start)).sum();
            assert!(sum <= u128::from(size), "more than the whole");
        }
        Ranges::Unsatisfiable => assert!(fields.has_field("Range")),
        Ranges::Whole => {}
    }
});
