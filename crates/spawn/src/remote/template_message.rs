//! Messages between server and helper about templates. As in [`message`](super::message), each is read by a strict grammar.

use crate::{
    template_failure::{LoadFailure, NoTemplate},
    template_kind::{TemplateKind, Uses},
};
use std::{ffi::CString, time::Duration};

/// An order to a helper to load a program. The template's standard descriptors and its socket are attached.
#[derive(Debug, PartialEq, Eq)]
pub struct TemplateOrder {
    /// The path of the program's file.
    pub program: CString,
    /// The number of requests that the template is for.
    pub uses: Uses,
    /// Names of learned modules, one a line.
    pub modules: Vec<u8>,
    /// Modules that changed at this time or later do not count.
    pub since: Duration,
}

/// Encoding of [`Uses`].
const MANY: u8 = b'M';
const ONCE: u8 = b'O';

impl TemplateOrder {
    /// Encodes the order, to follow the letter of its kind.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let uses = match self.uses {
            Uses::Many => MANY,
            Uses::Once => ONCE,
        };
        let seconds = self.since.as_secs().to_ne_bytes();
        let nanoseconds = self.since.subsec_nanos().to_ne_bytes();
        let program = self.program.as_bytes_with_nul();
        [&[uses][..], &seconds, &nanoseconds, program, &self.modules].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (uses, rest) = bytes.split_first()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let (nanoseconds, rest) = rest.split_first_chunk()?;
        let nanoseconds = u32::from_ne_bytes(*nanoseconds);
        let end = rest.iter().position(|&b| b == 0)?;
        let modules = rest[end + 1..].to_vec();
        if nanoseconds >= 1_000_000_000 || modules.contains(&0) {
            return None;
        }
        Some(Self {
            program: CString::new(&rest[..end]).ok()?,
            uses: match *uses {
                MANY => Uses::Many,
                ONCE => Uses::Once,
                _ => return None,
            },
            modules,
            since: Duration::new(u64::from_ne_bytes(*seconds), nanoseconds),
        })
    }
}

/// Order to fork another child, sent over a template's connection. It follows the number of the new child's connection.
pub(crate) const PREFORK: &[u8] = b"C";

impl NoTemplate {
    /// The reasons, in the order of their numbers in messages.
    const ALL: [Self; 4] = [Self::Unfit, Self::NotNow, Self::Changed, Self::Ended];
}

/// A report from a helper, over a template's socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TemplateReport {
    /// The program is of this kind, and runs as this process.
    Started(TemplateKind, i32),
    /// The template will stop before the program itself runs.
    Holds,
    /// Learned modules that are left to the children, one a line.
    Left(Vec<u8>),
    /// The template has stopped.
    Stopped(TemplateStop),
    /// There is no template, with a sentence for the log.
    None(NoTemplate, String),
    /// The template is gone, because a file of it has changed.
    Changed,
}

impl From<LoadFailure> for TemplateReport {
    fn from(LoadFailure { reason, words }: LoadFailure) -> Self {
        Self::None(reason, words)
    }
}

/// The state of a template that has stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateStop {
    /// Memory that the template uses, in bytes.
    pub(crate) memory: u64,
    /// The learned modules were checked: the helper knows the program's module search path.
    pub(crate) knows: bool,
    /// The reason why the template cannot be used; empty if it can.
    pub(crate) obstacle: String,
}

/// Longest text or list of a report, in bytes.
const WORDS: usize = 32 << 10;
/// Longest report, in bytes.
pub(crate) const REPORT: usize = WORDS + 16;

impl TemplateReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Started(kind, pid) => {
                let kind = *kind as u8; // there are only a few kinds
                [&[b'P', kind][..], &pid.to_ne_bytes()].concat()
            }
            Self::Holds => b"B".to_vec(),
            Self::Left(names) => [b"L", &names[..names.len().min(WORDS)]].concat(),
            Self::Stopped(stop) => {
                let (memory, knows) = (stop.memory.to_ne_bytes(), [u8::from(stop.knows)]);
                [b"R", &memory[..], &knows, truncate_words(&stop.obstacle)].concat()
            }
            Self::None(why, said) => [&[b'E', *why as u8][..], truncate_words(said)].concat(),
            Self::Changed => b"X".to_vec(),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (letter, rest) = bytes.split_first()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(match (letter, rest) {
            (b'P', [kind, pid @ ..]) => {
                let pid = i32::from_ne_bytes(pid.try_into().ok()?);
                let kind = TemplateKind::ALL.get(usize::from(*kind))?;
                (pid > 0).then_some(Self::Started(*kind, pid))?
            }
            (b'B', []) => Self::Holds,
            (b'L', names) => Self::Left(names.to_vec()),
            (b'R', rest) => {
                let (memory, rest) = rest.split_first_chunk()?;
                let (knows, obstacle) = rest.split_first()?;
                Self::Stopped(TemplateStop {
                    memory: u64::from_ne_bytes(*memory),
                    knows: *knows == 1,
                    obstacle: text(obstacle)?,
                })
            }
            (b'E', [why, said @ ..]) => {
                let why = NoTemplate::ALL.get(usize::from(*why))?;
                Self::None(*why, text(said)?)
            }
            (b'X', []) => Self::Changed,
            _ => return None,
        })
    }

    /// Splits the names of modules that are left to children into as many reports as needed.
    pub(crate) fn left_modules(names: &[String]) -> Vec<Self> {
        let mut all = vec![Vec::new()];
        for name in names.iter().filter(|name| name.len() < WORDS) {
            if all[all.len() - 1].len() + name.len() >= WORDS {
                all.push(Vec::new());
            }
            let last = all.len() - 1;
            all[last].extend(name.as_bytes());
            all[last].push(b'\n');
        }
        all.retain(|names| !names.is_empty());
        all.into_iter().map(Self::Left).collect()
    }
}

fn truncate_words(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(WORDS)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::remote::template_message::*;

    fn order(uses: Uses, modules: &str) -> TemplateOrder {
        TemplateOrder {
            program: c"/p".to_owned(),
            uses,
            modules: modules.into(),
            since: Duration::new(7, 999_999_999),
        }
    }

    #[test]
    fn orders_are_read_back_and_nothing_else_is() {
        for uses in [Uses::Many, Uses::Once] {
            for modules in ["", "os\nre\n"] {
                let order = order(uses, modules);
                assert_eq!(TemplateOrder::decode(&order.encode()), Some(order));
            }
        }
        let good = order(Uses::Many, "").encode();
        for end in 0..good.len() {
            assert_eq!(TemplateOrder::decode(&good[..end]), None);
        }
        assert_eq!(TemplateOrder::decode(&[&good[..], b"os\0"].concat()), None);
        let mut odd = good.clone();
        odd[0] = b'X';
        assert_eq!(TemplateOrder::decode(&odd), None);
        let mut late = good;
        late[9..13].copy_from_slice(&1_000_000_000u32.to_ne_bytes());
        assert_eq!(TemplateOrder::decode(&late), None);
    }

    #[test]
    fn reports_are_read_back() {
        let stopped = TemplateReport::Stopped(TemplateStop {
            memory: 1 << 40,
            knows: true,
            obstacle: "opens a socket".into(),
        });
        let all = [
            TemplateReport::Started(TemplateKind::Ruby, 7),
            TemplateReport::Holds,
            TemplateReport::Left(b"os\n".to_vec()),
            stopped,
            TemplateReport::None(NoTemplate::NotNow, "why".into()),
            TemplateReport::Changed,
        ];
        for report in all {
            let bytes = report.encode();
            assert_eq!(TemplateReport::decode(&bytes), Some(report));
        }
        for odd in [
            &b""[..],
            b"P",
            b"P\x09\x01\0\0\0",
            b"P\0\0\0\0\0",
            b"Bx",
            b"R1234567",
            b"E",
            b"E\x04words",
            b"Xx",
            b"E\0\xff",
        ] {
            assert_eq!(TemplateReport::decode(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn every_kind_and_every_reason_is_told_by_its_number() {
        for why in NoTemplate::ALL {
            let report = TemplateReport::None(why, "words".into());
            assert_eq!(TemplateReport::decode(&report.encode()), Some(report));
        }
        for kind in TemplateKind::ALL {
            let bytes = TemplateReport::Started(kind, 1).encode();
            let read = TemplateReport::decode(&bytes);
            assert_eq!(read, Some(TemplateReport::Started(kind, 1)));
        }
    }

    #[test]
    fn long_lists_become_several_reports() {
        let names: Vec<String> = (0..10_000).map(|n| format!("module{n}")).collect();
        let mut all = Vec::new();
        for report in TemplateReport::left_modules(&names) {
            assert!(report.encode().len() <= REPORT);
            let TemplateReport::Left(part) = report else {
                panic!("another report");
            };
            all.extend(part);
        }
        assert_eq!(all, (names.join("\n") + "\n").into_bytes());
        let long = TemplateReport::None(NoTemplate::Unfit, "ä".repeat(WORDS)).encode();
        assert!(long.len() <= REPORT && TemplateReport::decode(&long).is_some());
    }
}
