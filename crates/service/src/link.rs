//! Both ends of a connection, for programs and logs.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    rc::Rc,
};

use galgo_io::tls::Agreed;
use galgo_proto::{forwarded::ForwardedParams, gateway::Gateway, vars};

/// Both ends of a connection, as the connection itself or the proxy in front of it names them.
#[derive(Debug, Clone)]
pub struct Link {
    /// The client's address as text; `unix` if it has none.
    pub remote: Rc<str>,
    /// The client's address, if it has one.
    pub remote_ip: Option<IpAddr>,
    /// The client's port, if it is known.
    pub remote_port: Option<u16>,
    /// Our address as text; empty if there is none.
    pub local: Rc<str>,
    /// The port that the client asked; 0 if there is none.
    pub port: u16,
    /// Whether the client spoke TLS, as far as is known.
    pub https: bool,
    /// The TLS parameters of a client that speaks TLS to galgo itself.
    pub tls: Option<Rc<Agreed>>,
    /// (REMOTE_USER, AUTH_TYPE) as a FastCGI or SCGI front has verified them, or from the client's certificate.
    pub user: Option<(Rc<str>, Rc<str>)>,
    /// Another server passed the request on.
    pub passed_on: bool,
    /// Set if the connection began with a header of the PROXY protocol: the address of the peer that sent the
    /// header, or `None` for a Unix socket.
    pub announced_by: Option<Option<IpAddr>>,
}

impl Link {
    /// Returns the link between two socket addresses; `None` is a Unix socket.
    pub fn between(remote: Option<SocketAddr>, local: Option<SocketAddr>) -> Self {
        let remote_ip = remote.map(|a| a.ip().to_canonical());
        Self {
            remote: remote_ip.map_or_else(|| "unix".into(), format_address),
            remote_ip,
            remote_port: remote.map(|a| a.port()),
            local: local.map_or_else(|| "".into(), |a| format_address(a.ip().to_canonical())),
            port: local.map_or(0, |a| a.port()),
            https: false,
            tls: None,
            user: None,
            passed_on: false,
            announced_by: None,
        }
    }

    /// Returns the link of a socket to the peer `remote`. `local` is our address, if it is known.
    pub fn from_socket(
        sock: impl AsFd,
        remote: Option<SocketAddr>,
        local: Option<SocketAddr>,
    ) -> Self {
        let own = || SocketAddr::try_from(rustix::net::getsockname(sock.as_fd()).ok()?).ok();
        Self::between(remote, local.or_else(own))
    }

    /// Returns the link of a client that the peer names by the PROXY protocol; `None`: the peer is the client.
    #[must_use]
    pub fn with_proxy_ends(self, ends: galgo_proto::proxy::Ends) -> Self {
        let announced_by = Some(self.remote_ip);
        let link = match ends {
            Some((from, to)) => Self::between(Some(from), Some(to)),
            None => self,
        };
        Self {
            announced_by,
            ..link
        }
    }

    /// Returns the link of a client behind a trusted proxy.
    #[must_use]
    pub fn behind_proxy(&self, origin: &ForwardedParams) -> Self {
        let mut link = Self {
            https: origin.https.unwrap_or(self.https),
            port: origin.server_port().unwrap_or(self.port),
            passed_on: true,
            // These two describe the proxy's connection: the user may be from the proxy's certificate.
            tls: None,
            user: None,
            ..self.clone()
        };
        if let Some(client) = origin.client {
            link.remote = format_address(client);
            link.remote_ip = Some(client);
            link.remote_port = origin.client_port;
        }
        link
    }

    /// Returns the link of a client behind a FastCGI or SCGI front.
    pub fn from_gateway(gateway: &Gateway) -> Self {
        let user = gateway.user.as_ref();
        Self {
            remote: gateway.remote.map_or_else(|| "unix".into(), format_address),
            remote_ip: gateway.remote,
            remote_port: gateway.remote_port,
            local: gateway.local.map_or_else(|| "".into(), format_address),
            port: gateway.port.unwrap_or(0),
            https: gateway.https,
            tls: None,
            user: user.map(|(user, scheme)| (user.as_str().into(), scheme.as_str().into())),
            passed_on: true,
            announced_by: None,
        }
    }

    /// Returns the link for the variables of programs.
    pub fn connection_vars(&self) -> vars::ConnectionVars<'_> {
        vars::ConnectionVars {
            remote_addr: match self.remote_ip {
                Some(_) => &self.remote,
                None => "",
            },
            remote_port: self.remote_port,
            server_addr: &self.local,
            server_port: self.port,
            https: self.https,
            tls: self.tls.as_ref().map(|tls| vars::TlsVars {
                protocol: tls.protocol,
                cipher: &tls.cipher,
                server_name: tls.server_name.as_deref(),
                asked: tls.asked,
                client: tls.client.as_ref().map(|client| vars::ClientVars {
                    subject: &client.subject,
                    common_name: client.common_name.as_deref(),
                    issuer: &client.issuer,
                    serial: &client.serial,
                    start: &client.start,
                    end: &client.end,
                }),
            }),
        }
    }
}

/// Whether only this machine reaches `ip`.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Writes an address as text. Called for every connection, because `Display` would take a tenth of all
/// instructions.
fn format_address(ip: IpAddr) -> Rc<str> {
    let IpAddr::V4(ip) = ip else {
        return ip.to_string().into();
    };
    let (mut text, mut len) = ([0; "255.255.255.255".len()], 0);
    let mut push = |byte| {
        text[len] = byte;
        len += 1;
    };
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            push(b'.');
        }
        let (hundreds, tens, ones) = (octet / 100, octet / 10 % 10, octet % 10);
        if hundreds > 0 {
            push(b'0' + hundreds);
        }
        if hundreds > 0 || tens > 0 {
            push(b'0' + tens);
        }
        push(b'0' + ones);
    }
    // INVARIANT: digits and dots.
    str::from_utf8(&text[..len]).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_display_has_them() {
        for octet in 0..=255 {
            let ip = IpAddr::from([octet, 0, 10, 255 - octet]);
            assert_eq!(&*format_address(ip), ip.to_string());
        }
        assert_eq!(&*format_address(IpAddr::from([0; 16])), "::");
    }
}
