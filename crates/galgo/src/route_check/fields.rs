//! Fields and media types that an operator adds to responses.

use crate::config_text::{
    config_error::{Checked, ConfigText},
    raw,
};

impl ConfigText<'_> {
    /// Checks the form of a media type, so that it cannot spoil a field value.
    pub(crate) fn check_media_type(&self, typed: &raw::Text) -> Checked<String> {
        let text = typed.get_ref();
        let main = text.split(';').next().unwrap_or_default().trim_end();
        let good = main
            .split_once('/')
            .is_some_and(|(a, b)| is_token(a) && is_token(b));
        if !good || !is_field_value(text) {
            let message = format!("{text:?} is not a media type: write it as in \"text/html\"");
            return Err(self.error_at(typed.span(), message));
        }
        Ok(text.clone())
    }

    pub(crate) fn check_headers(
        &self,
        typed: &raw::Typed<raw::Map>,
    ) -> Checked<Vec<(String, String)>> {
        /// Fields that are computed for each response; RFC 9110 and 9112.
        const COMPUTED: [&str; 12] = [
            "connection",
            "content-encoding",
            "content-length",
            "content-range",
            "content-type",
            "date",
            "etag",
            "keep-alive",
            "last-modified",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ];
        let mut headers = Vec::new();
        for (name, value) in typed.iter().flat_map(|map| map.get_ref()) {
            let text = name.get_ref();
            if !is_token(text) {
                let message = format!("headers: {text:?} is not the name of a field");
                return Err(self.keyless_error(name.span(), message));
            }
            if COMPUTED.contains(&text.to_ascii_lowercase().as_str()) {
                let message = format!("headers: {text} is computed for each response: delete it");
                return Err(self.keyless_error(name.span(), message));
            }
            if !is_field_value(value.get_ref()) {
                let message =
                    "a field value holds visible ASCII and single spaces around words only";
                return Err(self.error_at(value.span(), message));
            }
            headers.push((text.clone(), value.get_ref().clone()));
        }
        Ok(headers)
    }
}

/// Returns whether a text is a token (RFC 9110, 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(galgo_proto::fields::is_token)
}

/// Returns whether a text is a field value (RFC 9110, 5.5), without obs-text.
fn is_field_value(text: &str) -> bool {
    text.bytes()
        .all(|b| matches!(b, b' ' | b'\t' | 0x21..=0x7e))
        && text.trim_ascii() == text
}
