//! Tables of events and times that test when a program is loaded, paused, started again and given up. Cases that need
//! a loaded template, and so a process, are integration tests.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// A program that was not requested for this long is given up.
const LONGEST: Duration = Duration::from_secs(900);

/// An event in the life of a program.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// This many seconds pass.
    Pass(u64),
    /// The program could not be loaded.
    Fails,
    /// A file of the program is seen to change.
    Changes,
    /// The program can only be parked, or (`Unfit`) not be warm at all.
    Parks,
    Unfit,
    /// A parked process takes a request.
    Unparks,
    /// The program makes room for another program; `Asked`: it is requested again.
    Displaced,
    Asked,
}
use Event::*;

/// The keeper's next task, with waits in seconds.
#[derive(Debug, PartialEq)]
enum Next {
    Load {
        uses: Uses,
        first: bool,
        changes: u64,
    },
    Wait(Duration),
    Over,
}

/// Returns the identity of some file.
fn version() -> FileId {
    FileId::from_stat(&rustix::fs::stat("/").unwrap())
}

/// Plays the events. Returns the next task for a program that was last requested `idle` ago.
fn next(events: &[Event], idle: Duration) -> (Next, WarmState) {
    let mut now = Instant::now();
    let version = version();
    let mut state = WarmState::new(version, now);
    state.has_keeper = true;
    for event in events {
        match event {
            Pass(seconds) => now += Duration::from_secs(*seconds),
            Fails => drop(state.failed(now)),
            Changes => assert!(state.renew(&version, now).is_empty()),
            Parks => state.fit = Fit::Parked("reads its input".into()),
            Unfit => state.fit = Fit::Cold,
            Unparks => state.unparked += 1,
            Displaced => state.displaced = true,
            Asked => state.displaced = false,
        }
    }
    let next = match state.work(now, idle, LONGEST) {
        KeeperTask::Load(order) => Next::Load {
            uses: order.uses,
            first: order.first,
            changes: order.revision.changes,
        },
        KeeperTask::Wait(long) => Next::Wait(long),
        KeeperTask::Over => Next::Over,
    };
    (next, state)
}

const LOAD: Next = load(Uses::Many, true, 0);

const fn load(uses: Uses, first: bool, changes: u64) -> Next {
    Next::Load {
        uses,
        first,
        changes,
    }
}

const fn wait(seconds: u64) -> Next {
    Next::Wait(Duration::from_secs(seconds))
}

#[test]
fn what_a_keeper_does_next() {
    let table: &[(&[Event], Next)] = &[
        (&[], LOAD),
        (&[Pass(10_000)], LOAD),
        // A failure keeps the program cold for a second, and each further failure for twice as long.
        (&[Fails], wait(1)),
        (&[Fails, Pass(1)], LOAD),
        (&[Fails, Pass(1), Fails], wait(2)),
        (&[Fails, Pass(1), Fails, Pass(1)], wait(1)),
        (&[Fails, Pass(1), Fails, Pass(2)], LOAD),
        (&[Fails, Fails, Fails, Fails, Fails, Fails], wait(32)),
        (&[Fails, Fails, Fails, Fails, Fails, Fails, Fails], wait(60)),
        (&[Fails, Fails, Fails, Pass(600), Fails], wait(8)),
        (&[Fails, Fails, Fails, Pass(601), Fails], wait(1)),
        // A change starts again at once, unless it follows another change closely.
        (&[Changes], load(Uses::Many, true, 1)),
        (&[Fails, Changes], load(Uses::Many, true, 1)),
        (&[Changes, Changes], wait(1)),
        (&[Changes, Changes, Pass(1)], load(Uses::Many, true, 2)),
        (&[Changes, Pass(1), Changes], load(Uses::Many, true, 2)),
        // A program that cannot be forked is parked; the log tells that once.
        (&[Parks], load(Uses::Once, true, 0)),
        (&[Parks, Unparks], load(Uses::Once, false, 0)),
        (&[Parks, Unparks, Changes], load(Uses::Many, true, 1)),
        // A program that can neither be forked nor parked is cold until it changes.
        (&[Unfit], Next::Over),
        (&[Unfit, Pass(10_000)], Next::Over),
        (&[Unfit, Changes], load(Uses::Many, true, 1)),
        // A program that has made room comes back when it is requested again.
        (&[Displaced], Next::Over),
        (&[Displaced, Changes], Next::Over),
        (&[Displaced, Asked], LOAD),
        (&[Fails, Displaced, Asked], wait(1)),
    ];
    for (events, wanted) in table {
        let (next, state) = next(events, Duration::ZERO);
        assert_eq!(next, *wanted, "{events:?}");
        assert_eq!(state.has_keeper, next != Next::Over, "{events:?}");
    }
}

#[test]
fn a_program_that_nobody_asks_for_is_given_up() {
    for (idle, wanted) in [
        (Duration::ZERO, LOAD),
        (LONGEST - SECOND, LOAD),
        (LONGEST, Next::Over),
        (LONGEST * 2, Next::Over),
    ] {
        assert_eq!(next(&[], idle).0, wanted, "{idle:?}");
    }
    // The pause after a failure is not waited for either.
    assert_eq!(next(&[Fails], LONGEST).0, Next::Over);
}

/// No fact about the previous revision is held against the next one.
#[test]
fn a_change_forgets() {
    let (_, mut state) = next(&[Parks, Unparks], Duration::ZERO);
    state.obstacle = Some("no memory".into());
    let report = b"json\n";
    assert!(
        state
            .learned
            .take(galgo_spawn::template::TemplateKind::Python, report)
    );
    let now = Instant::now();
    assert!(state.renew(&version(), now).is_empty());
    assert_eq!((&state.fit, state.unparked), (&Fit::Forked, 0));
    assert!(state.obstacle.is_none() && state.learned.names.is_empty());
    let KeeperTask::Load(order) = state.work(now, Duration::ZERO, LONGEST) else {
        panic!("{state:?}")
    };
    assert!(order.learned.is_empty() && !order.proven);
    // The turn is asked for while there is no template.
    assert!(state.next_child().is_none());
}
