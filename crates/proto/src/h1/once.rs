//! Fields that a head may hold once.

/// A field that may come once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Once<'b> {
    #[default]
    Absent,
    One(&'b [u8]),
    Several,
}

impl<'b> Once<'b> {
    pub(super) fn add_value(&mut self, value: &'b [u8]) {
        *self = match self {
            Self::Absent => Self::One(value),
            _ => Self::Several,
        };
    }
}
