//! The arguments of `galgo check --url`: a URL, and the request that a client would send for it.

use std::net::{IpAddr, Ipv4Addr};

use galgo_proto::h1::Head;
use galgo_service::link::Link;
use galgo_spawn::words;

use crate::config::Config;

/// Arguments that describe a request.
#[derive(Debug, clap::Args)]
pub(super) struct UrlArgs {
    /// Say what answers this URL, step by step
    #[arg(long, value_name = "URL", conflicts_with = "warm")]
    pub(super) url: Option<String>,
    /// The client's address, with --url
    #[arg(long, value_name = "ADDRESS", requires = "url", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// The method, with --url
    #[arg(long, value_name = "METHOD", requires = "url", default_value = "GET")]
    method: String,
    /// "Name: value" of the request, with --url; repeatable
    #[arg(long, value_name = "FIELD", requires = "url")]
    header: Vec<String>,
}

impl UrlArgs {
    /// Describes a request for a page by a client from anywhere.
    pub(super) fn anybody() -> Self {
        Self {
            url: None,
            // An address that belongs to no network (RFC 5737).
            from: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            method: "GET".into(),
            header: Vec::new(),
        }
    }
}

/// Makes the request that a client would send for a URL.
pub(super) fn request(config: &Config, args: &UrlArgs, url: &str) -> Result<(Head, Link), String> {
    // A browser does not send the fragment.
    let url = url.split('#').next().unwrap_or_default();
    let (https, rest) = match url.split_once("://") {
        None if url.starts_with('/') => (false, format!("localhost{url}")),
        Some(("http", rest)) => (false, rest.to_owned()),
        Some(("https", rest)) => (true, rest.to_owned()),
        _ => {
            let shown = words::escape(url.as_bytes());
            return Err(format!(
                "{shown} is not a URL: write \"https://example.org/path\", or \"/path\""
            ));
        }
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(at);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let method = &args.method;
    let mut text = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {host}\r\n");
    for field in &args.header {
        if field.contains(['\r', '\n']) || !field.contains(':') {
            let shown = words::escape(field.as_bytes());
            return Err(format!(
                "{shown} is not a header field: write --header \"User-Agent: curl\""
            ));
        }
        text.push_str(&format!("{field}\r\n"));
    }
    text.push_str("\r\n");
    let head = Head::parse(text.as_bytes(), &config.http.head_limits())
        .map_err(|e| format!("the server answers {} to this: {}", e.status, e.why))?;
    let port = host
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let local = (
        Ipv4Addr::LOCALHOST,
        port.unwrap_or(if https { 443 } else { 80 }),
    );
    let mut link = Link::between(Some((args.from, 0).into()), Some(local.into()));
    link.https = https;
    Ok((head, link))
}
