//! SCGI requests: a piece is never more than unfinished, and what is read can be written again.
#![no_main]

use galgo_proto::{Parsed, scgi, vars::Sink};
use libfuzzer_sys::fuzz_target;

const MOST: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Ok(Parsed::Complete(variables, used)) = scgi::parse_variables(data, MOST) else {
        return;
    };
    assert!(used <= data.len());
    for cut in 0..used {
        assert_eq!(
            scgi::parse_variables(&data[..cut], MOST),
            Ok(Parsed::Partial)
        );
    }
    let mut request = scgi::ScgiRequest::new(variables.content_length);
    let others: Vec<_> = variables
        .iter()
        .filter(|(name, _)| *name != b"SCGI" && *name != b"CONTENT_LENGTH")
        .collect();
    for (name, value) in &others {
        request.put_variable(name, value);
    }
    let again = request.finish();
    let Ok(Parsed::Complete(back, end)) = scgi::parse_variables(&again, 2 * MOST) else {
        panic!("what is written is not read");
    };
    assert_eq!(
        (back.content_length, end),
        (variables.content_length, again.len())
    );
    assert_eq!(back.iter().skip(2).collect::<Vec<_>>(), others);
});
