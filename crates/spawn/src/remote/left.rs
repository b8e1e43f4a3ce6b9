//! Words of server and helper about processes that a program leaves running.

/// Leftover processes outside of the program's group stay, or are ended: see [`Child::let_leftovers_stay`](crate::Child). No
/// signal and no priority has these numbers.
pub(crate) const LEFTOVERS: [u8; 2] = [u8::MAX - 2, u8::MAX - 1];

/// What a program has left running at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftProcesses {
    /// Nothing: the connection is free.
    None,
    /// Processes outside of its group. They may write to its output until the server closes the connection.
    Outside,
    /// Processes of its group, and maybe others.
    Group,
}

impl LeftProcesses {
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let all = [Self::None, Self::Outside, Self::Group];
        all.into_iter().find(|left| *left as u64 == number)
    }
}
