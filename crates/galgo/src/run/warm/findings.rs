//! Differences between cold and warm answers, and their report.

use std::time::Duration;

/// An answer, split into parts.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    /// Status, headers, body, stderr, exit status: named in [`PARTS`].
    pub(super) parts: [Vec<u8>; 5],
    pub(super) took: Duration,
    /// The error of the answer, in the server's words.
    pub(super) fault: Option<String>,
}

const PARTS: [&str; 5] = ["status", "headers", "body", "stderr", "exit status"];

/// Answers to the same request, cold and warm in turn.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) cold: Vec<Answered>,
    pub(super) warm: Vec<Answered>,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    differences: Vec<String>,
    /// Parts that vary from one cold start to the next.
    vary: Vec<String>,
}

impl Rounds {
    /// Returns a warm answer that differs from the cold answers in one part, if all cold answers agree in this part.
    fn differing_warm_answer(&self, at: usize) -> Option<&Answered> {
        let cold = &self.cold[0].parts[at];
        let other = |a: &&Answered| a.parts[at] != *cold;
        if self.cold.iter().any(|c| other(&c)) {
            None
        } else {
            self.warm.iter().find(other)
        }
    }

    /// Returns whether there is a difference to confirm.
    pub(super) fn is_suspicious(&self) -> bool {
        (0..PARTS.len()).any(|at| self.differing_warm_answer(at).is_some())
    }
}

impl Findings {
    /// Compares the answers to a method. `again` holds the answers of a second later, if there were any: only a difference
    /// that came back counts, because a clock or a race differs once.
    pub(super) fn record_differences(
        &mut self,
        method: &str,
        first: &Rounds,
        again: Option<&Rounds>,
    ) {
        for (at, part) in PARTS.iter().enumerate() {
            let value = &first.cold[0].parts[at];
            let colds = first.cold.iter().chain(again.iter().flat_map(|a| &a.cold));
            let mut colds = colds.map(|a| &a.parts[at]);
            if colds.any(|cold| cold != value) {
                self.vary.push(format!("{part} of {method}"));
            } else if first.differing_warm_answer(at).is_some()
                && let Some(warm) = again.and_then(|a| a.differing_warm_answer(at))
            {
                let (cold, warm) = differing(value, &warm.parts[at]);
                let said = format!("{part} of {method}: cold {cold:?}, warm {warm:?}");
                self.differences.push(said);
            }
        }
    }

    /// Returns the report, and whether anything differs.
    pub(super) fn build_report(&self, name: &str, gets: &Rounds, is_set: bool) -> (String, bool) {
        let (cold, warm) = (median(&gets.cold), median(&gets.warm));
        let differs = !self.differences.is_empty();
        let verdict = match () {
            () if differs => "differs; keep start = \"cold\"",
            () if is_set => "identical; start = \"warm\" is set",
            () if warm >= cold => "identical; start = \"warm\" is no faster",
            () => "identical; set start = \"warm\"",
        };
        let mut said = format!("{name}: cold {cold:.1} ms, warm {warm:.1} ms, {verdict}");
        for difference in &self.differences {
            said.push_str(&format!("\n    {difference}"));
        }
        if !self.vary.is_empty() {
            let vary = self.vary.join(", ");
            said.push_str(&format!("\n    differs between cold starts, too: {vary}"));
        }
        (said, differs)
    }
}

fn median(answers: &[Answered]) -> f64 {
    let mut all: Vec<_> = answers.iter().map(|a| a.took).collect();
    all.sort_unstable();
    all[all.len() / 2].as_secs_f64() * 1e3
}

/// Returns the first lines that differ.
fn differing(cold: &[u8], warm: &[u8]) -> (String, String) {
    let line = |text: &[u8], at: usize| {
        let line = text.split(|&b| b == b'\n').nth(at).unwrap_or_default();
        String::from_utf8_lossy(line).chars().take(80).collect()
    };
    let mut pairs = cold.split(|&b| b == b'\n').zip(warm.split(|&b| b == b'\n'));
    let same = pairs.position(|(c, w)| c != w);
    let at = same.unwrap_or_else(|| {
        let lines = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() + 1;
        lines(cold).min(lines(warm))
    });
    (line(cold, at), line(warm, at))
}

#[cfg(test)]
mod tests {
    use crate::run::warm::findings::*;

    fn answered(body: &str, ms: f64) -> Answered {
        Answered {
            parts: [vec![], vec![], body.into(), vec![], vec![]],
            took: Duration::from_secs_f64(ms / 1e3),
            fault: None,
        }
    }

    fn rounds(cold: [&str; 2], warm: [&str; 2]) -> Rounds {
        Rounds {
            cold: cold.map(|body| answered(body, 36.12)).into(),
            warm: warm.map(|body| answered(body, 4.0)).into(),
        }
    }

    #[test]
    fn only_what_comes_back_is_a_difference() {
        let same = rounds(["a\nb"; 2], ["a\nb"; 2]);
        let odd = rounds(["a\nb"; 2], ["a\nb", "a\nc"]);
        let later = rounds(["b"; 2], ["b"; 2]);
        let varying = rounds(["1", "2"], ["3", "4"]);
        assert!(odd.is_suspicious() && !same.is_suspicious() && !varying.is_suspicious());
        let says = |first: &Rounds, again: Option<&Rounds>| {
            let mut findings = Findings::default();
            findings.record_differences("GET", first, again);
            findings.build_report("p", first, false)
        };
        let identical = "p: cold 36.1 ms, warm 4.0 ms, identical; set start = \"warm\"";
        let varies = format!("{identical}\n    differs between cold starts, too: body of GET");
        assert_eq!(says(&same, None), (identical.into(), false));
        assert_eq!(says(&varying, None), (varies.clone(), false));
        // A race lost once, and a clock that ticked.
        assert_eq!(says(&odd, Some(&same)), (identical.into(), false));
        assert_eq!(says(&odd, Some(&later)), (varies, false));
        let (said, differs) = says(&odd, Some(&odd));
        assert!(differs);
        assert!(
            said.contains("\n    body of GET: cold \"b\", warm \"c\""),
            "{said}"
        );
    }
}
