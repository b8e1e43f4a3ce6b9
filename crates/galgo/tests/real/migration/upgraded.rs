//! Connections that lighttpd and galgo give to programs: the pair about `cgi.upgrade`.

use std::net::SocketAddr;

use galgo_testkit::Client;

use super::{PAGES, scene::Scene};

/// A client's conversation over a connection that it has asked for.
struct Talk {
    target: &'static str,
    /// Header fields by which the client asks for the connection.
    asks: &'static str,
    /// Bytes that the client sends in the same write as the head of the request.
    early: Vec<u8>,
    /// Bytes to send, each with the expected answer.
    turns: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the client ends its sending side. A program that reads to the end needs this.
    half_closes: bool,
}

/// The answers that the client receives.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    status_line: String,
    /// Fields with their values; missing fields are left out.
    fields: Vec<(&'static str, String)>,
    turns: Vec<Vec<u8>>,
    /// Bytes after the turns, up to the end of the connection.
    rest: Vec<u8>,
}

/// Fields of a 101 that a client acts upon, or that must be absent.
const FIELDS: [&str; 7] = [
    "connection",
    "upgrade",
    "sec-websocket-accept",
    "x-powered-by",
    "content-length",
    "transfer-encoding",
    "content-type",
];

impl Talk {
    fn with(&self, at: SocketAddr) -> Heard {
        let mut client = Client::connect(at);
        let (target, asks) = (self.target, self.asks);
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{asks}\r\n");
        client.send([head.as_bytes(), &self.early].concat());
        let head = client.head();
        let field = |name| {
            let values = head.fields(name).join(", ").to_ascii_lowercase();
            (!values.is_empty()).then_some((name, values))
        };
        let turns = self.turns.iter().map(|(bytes, answer)| {
            client.send(bytes);
            client.take(answer.len())
        });
        let turns = turns.collect();
        if self.half_closes {
            client.half_close();
        }
        Heard {
            status_line: head.head.lines().next().unwrap_or("").to_owned(),
            fields: FIELDS.into_iter().filter_map(field).collect(),
            turns,
            rest: client.rest(),
        }
    }
}

const WEBSOCKET: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const LINES: &str = "Connection: Upgrade\r\nUpgrade: lines\r\n";

// Opcodes of frames (RFC 6455, 5.2).
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Makes a frame that contains its whole message, as a server sends it (RFC 6455, 5.2).
fn frame(opcode: u8, data: &[u8]) -> Vec<u8> {
    let length = match u8::try_from(data.len()) {
        Ok(short @ 0..126) => vec![short],
        _ => [
            &[126],
            &u16::try_from(data.len()).unwrap().to_be_bytes()[..],
        ]
        .concat(),
    };
    [&[0x80 | opcode], &length[..], data].concat()
}

/// Makes the same frame as a client sends it, masked.
fn masked(opcode: u8, data: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = frame(opcode, data);
    let payload = frame.split_off(frame.len() - data.len());
    frame[1] |= 0x80;
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(a, b)| a ^ b));
    frame
}

/// Sends messages, a ping, and a close that the program answers.
fn websocket(early: &[u8]) -> Talk {
    let turn = |asks, data: &[u8], answers| (masked(asks, data), frame(answers, data));
    let early_answer = match early {
        [] => Vec::new(),
        message => frame(TEXT, message),
    };
    Talk {
        target: "/cgi-bin/talk",
        asks: WEBSOCKET,
        early: match early {
            [] => Vec::new(),
            message => masked(TEXT, message),
        },
        turns: vec![
            (Vec::new(), early_answer),
            turn(TEXT, b"Hello", TEXT),
            turn(PING, b"there", PONG),
            turn(BINARY, &[0xa5; 60_000], BINARY),
            turn(CLOSE, &1000_u16.to_be_bytes(), CLOSE),
        ],
        half_closes: false,
    }
}

/// Sends bytes of every value to a program that sends them back and ends when the client does.
fn bytes(early: &[u8]) -> Talk {
    let all: Vec<u8> = (0..=255).collect();
    let many = all.repeat(200);
    Talk {
        target: "/cgi-bin/echo/x?q",
        asks: LINES,
        early: early.to_vec(),
        turns: vec![
            (Vec::new(), early.to_vec()),
            (all.clone(), all),
            (many.clone(), many),
        ],
        half_closes: true,
    }
}

#[test]
fn lighttpd_and_galgo_give_connections_alike() {
    let page = PAGES.iter().find(|page| page.name == "lighttpd.md");
    let page = page.unwrap();
    let pairs = page.pairs();
    let pair = pairs.iter().find(|pair| pair.says("cgi.upgrade")).unwrap();
    let scene = Scene::new(pair);
    let other = (page.start)(pair, scene.galgo.site.folder());
    let talks = [
        websocket(b""),
        websocket(b"early"),
        bytes(b""),
        bytes(b"early"),
    ];
    for talk in talks {
        let [theirs, ours] = [other.at, scene.galgo.address()].map(|at| talk.with(at));
        assert_eq!(ours, theirs, "{}", talk.target);
        assert!(ours.status_line.starts_with("HTTP/1.1 101 "), "{ours:?}");
        let answers = talk.turns.into_iter().map(|(_, answer)| answer);
        assert!(ours.turns.into_iter().eq(answers), "{}", talk.target);
    }
}
