//! Reasons why a response head is refused, in words that a program's author can act on.

use std::fmt;

/// The reason why a response head is a 502. `Display` prints it as one line of printable ASCII for
/// the log. The line quotes the program's output, so it is not for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// A line of the head is wrong.
    Line {
        /// Line number, from 1.
        line: usize,
        /// The fault of the line.
        fault: LineFault,
        /// The line, escaped and cut.
        text: String,
    },
    /// The head begins with its empty line.
    NoFields,
    /// The head does not end within this many bytes.
    TooLong(usize),
    /// The head has more than this many fields.
    TooManyFields(usize),
    /// 101 without the field Upgrade.
    NoUpgrade,
    /// The output ended before its first byte.
    Nothing,
    /// The output ended after this many whole lines, without the empty line.
    NoEmptyLine(usize),
}

/// Length of a quoted line, in bytes before they are escaped.
const QUOTED: usize = 80;

impl ReplyError {
    pub(super) fn from_line(line: usize, fault: LineFault, text: &[u8]) -> Self {
        let cut = &text[..text.len().min(QUOTED)];
        let mut quoted = cut.escape_ascii().to_string();
        if cut.len() < text.len() {
            quoted.push_str("...");
        }
        Self::Line {
            line,
            fault,
            text: quoted,
        }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, fault, text } => {
                let LineFault { what, hint } = fault;
                write!(f, "line {line} of the response head {what}: \"{text}\"")?;
                if hint.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; {hint}")
                }
            }
            Self::NoFields => write!(
                f,
                "the response head is empty: the output begins with an empty line; {EXAMPLE}"
            ),
            Self::TooLong(limit) => write!(
                f,
                "the response head does not end within {limit} bytes; an empty line ends it"
            ),
            Self::TooManyFields(limit) => write!(
                f,
                "the response head has more than {limit} fields, which is the limit"
            ),
            Self::NoUpgrade => write!(
                f,
                "the response head says 101 but names no protocol; print \"Upgrade: websocket\" too"
            ),
            Self::Nothing => write!(f, "{ENDED}: it printed nothing"),
            Self::NoEmptyLine(1) => write!(
                f,
                "{ENDED}: it printed one field and no empty line after the header"
            ),
            Self::NoEmptyLine(lines) => write!(
                f,
                "{ENDED}: it printed {lines} fields and no empty line after the header"
            ),
        }
    }
}

impl std::error::Error for ReplyError {}

const ENDED: &str = "the program ended before its response head was complete";
const EXAMPLE: &str = "a program prints fields such as \"Content-Type: text/html\", an empty line, \
                       and then its document";

/// The fault of a line in a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineFault {
    /// The fault, as a verb phrase about the line.
    what: &'static str,
    /// Advice, which may be empty.
    hint: &'static str,
}

impl LineFault {
    const fn new(what: &'static str, hint: &'static str) -> Self {
        Self { what, hint }
    }

    pub(super) const NO_COLON: Self = Self::new("is not a header field", EXAMPLE);
    pub(super) const STATUS_LINE: Self = Self::new(
        "is an HTTP status line",
        "print \"Status: 200 OK\" instead, or give the program a name that begins with \"nph-\"",
    );
    pub(super) const EMPTY_NAME: Self = Self::new("has no name before its colon", EXAMPLE);
    pub(super) const SPACE_BEFORE_COLON: Self =
        Self::new("has white space before its colon", "remove it");
    pub(super) const BAD_NAME: Self = Self::new(
        "has a name with a byte that no field name may hold",
        "names are made of ASCII letters, digits and \"-\"",
    );
    /// The byte order mark U+FEFF.
    pub(super) const BYTE_ORDER_MARK: Self = Self::new(
        "begins with a byte order mark",
        "save the program without one, as plain UTF-8",
    );
    /// A continuation line (obs-fold) or an indented field.
    pub(super) const FOLDED: Self = Self::new(
        "begins with white space",
        "a field begins at the start of its line and does not continue on the next",
    );
    pub(super) const NUL: Self = Self::new("holds a NUL byte", "");
    pub(super) const BARE_CR: Self = Self::new(
        "holds a carriage return that does not end it",
        "a line ends with LF or CRLF",
    );
    pub(super) const CONTROL: Self = Self::new("holds a control character", "");
    pub(super) const TWICE: Self = Self::new(
        "repeats a field that may be there once",
        "print Content-Type, Content-Length, Location and Status at most once each",
    );
    pub(super) const STATUS: Self = Self::new(
        "is not a status",
        "print a number from 200 to 599, as in \"Status: 404 Not Found\"",
    );
    pub(super) const LENGTH: Self = Self::new(
        "is not a length",
        "print a decimal number of bytes, or no Content-Length",
    );
    /// Content-Type or Location.
    pub(super) const NO_VALUE: Self = Self::new("has no value", "");
    pub(super) const TRANSFER_ENCODING: Self = Self::new(
        "sets Transfer-Encoding",
        "print the document as it is: the server frames it",
    );
    pub(super) const UNFINISHED: Self = Self::new(
        "is not complete: the program ended within it",
        "an empty line ends the response head",
    );
}
