//! Isolation of programs from each other and from the server, and the gaps in it.

use std::{os::unix::fs::MetadataExt, path::Path};

use galgo_spawn::{
    Limits, Sandbox,
    identity::{effective_uid, is_root, user_name_of},
    may_close_ranges,
    owners::{Remit, are_delegated},
    sandbox::{self, Network, kernel},
    trusted_path::starter,
};

use crate::config::{CgiOptions, Config, Route, To};

/// Returns a sentence for each gap, for the start of the server and for `galgo check`.
pub(super) fn find_gaps(config: &Config) -> Vec<String> {
    let root = is_root() && config.identity.is_none();
    let scopes = galgo_spawn::keeps_apart();
    let of_kernel = [
        (!may_close_ranges()).then_some(
            "a filter of system calls refuses close_range(2): no program can be started. Allow it in the seccomp profile of the \
             container, or in SystemCallFilter= of the service",
        ),
        (!scopes).then_some(
            "this kernel cannot isolate programs (needs Landlock's scopes, Linux 6.12): programs can signal and kill the server and \
             each other, and inspect each other",
        ),
        (kernel().landlock == 0 && hides_files(config)).then_some(
            "this kernel cannot hide files from the server (needs Landlock, Linux 5.13): the server can use every file that its user can",
        ),
        (!sandbox::is_available()).then_some(
            "this kernel cannot refuse system calls (needs seccomp): programs can make every call that their user can",
        ),
    ];
    let of_kernel = of_kernel.into_iter().flatten().map(String::from);
    let groups = groups(config);
    let gaps = groups.iter().flat_map(|group| {
        gaps_of(group, root, scopes).map(move |gap| format!("{}: {gap}", group.name))
    });
    of_kernel.chain(gaps).collect()
}

/// Whether the server is to see only the files that it serves. That needs root, which starts it, and helpers, which start all
/// programs.
fn hides_files(config: &Config) -> bool {
    let helped = config.remits().next().is_some() && config.starts_here().is_none();
    helped && starter() == 0
}

/// Programs of a route, or of the folders of hosts.
struct ProgramGroup<'c> {
    name: &'c str,
    /// The options of each program that the group starts.
    options: Vec<&'c CgiOptions>,
    /// A helper starts the programs.
    helped: bool,
}

fn groups(config: &Config) -> Vec<ProgramGroup<'_>> {
    let routes = config.routes.iter().map(|route| ProgramGroup {
        name: &route.path,
        options: options(route).collect(),
        helped: route.remits().next().is_some(),
    });
    let hosts = config.sites.iter().map(|sites| ProgramGroup {
        name: "sites",
        options: vec![&config.options],
        helped: sites.remit.is_some(),
    });
    routes.chain(hosts).collect()
}

/// Returns the gaps in the isolation of a group.
fn gaps_of(
    group: &ProgramGroup<'_>,
    root: bool,
    scopes: bool,
) -> impl Iterator<Item = &'static str> {
    let any = |of: fn(&CgiOptions) -> bool| group.options.iter().any(|options| of(options));
    let apart = if any(|o| o.sandbox == Sandbox::Off) {
        Some(
            "sandbox = \"off\": its programs can signal and kill the server and each other, inspect each other, and make \
             every system call",
        )
    } else {
        any(|o| !o.no_new_privs).then_some(if root || !scopes { "no_new_privs = false: its programs may make every system call" } else { 
                "its programs are not isolated, because that needs no_new_privs = true or root: they can signal and kill the \
                 server and each other, inspect each other, and make every system call"
             })
    };
    let strict = group.options.iter().find_map(|o| o.strict.as_ref());
    let loopback = strict.is_some_and(|strict| strict.network == Network::Loopback);
    let limit_held = group.helped && are_delegated();
    let gaps = [
        apart,
        (strict.is_some() && kernel().landlock == 0).then_some(
            "a strict sandbox without Landlock (Linux 5.13): its programs may use every file that their user may, outside of \
             /tmp and /run where those are their own",
        ),
        (strict.is_some() && starter() == 0 && !kernel().namespaces).then_some(
            "a strict sandbox without namespaces, which the kernel or a container refuses (unshare(2), mount(2)): /tmp, shared \
             memory and process IDs are the machine's",
        ),
        (loopback && !kernel().networks).then_some(
            "network = \"loopback\" needs root to create a network: its programs have no network at all",
        ),
        (any(|o| o.limits.cpu_percent.is_some()) && !limit_held).then_some(
            "`cpu` in percent needs a control group: set `user` or a strict sandbox on the route, and Delegate=yes in the unit \
             of the service. Its programs have no such limit",
        ),
    ];
    gaps.into_iter().flatten()
}

/// Describes how each limit of programs is enforced, for `galgo check`. `helped`: a helper starts the programs.
fn limits(limits: &Limits, helped: bool) -> String {
    let grouped = helped && are_delegated();
    let all = [
        (limits.memory.is_some(), "memory", "memory.max", "RLIMIT_AS"),
        (
            limits.processes.is_some(),
            "processes",
            "pids.max",
            "RLIMIT_NPROC",
        ),
        (limits.cpu.is_some(), "cpu", "RLIMIT_CPU", "RLIMIT_CPU"),
        (limits.cpu_percent.is_some(), "cpu", "cpu.max", "nothing"),
    ];
    let set = all.into_iter().filter(|(is_set, ..)| *is_set);
    let words = set.map(|(_, key, group, each)| {
        let by = if grouped { group } else { each };
        format!("{key} by {by}")
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("; limits: {}", words.join(", "))
    }
}

/// Describes how a strict sandbox is enforced here, for the start and for `galgo check`; empty for any other sandbox.
pub(super) fn describe_enforcement(options: &CgiOptions) -> String {
    let Some(strict) = &options.strict else {
        return String::new();
    };
    let kernel = kernel();
    let files = match kernel.landlock {
        0 => "files not restricted",
        _ => "files by Landlock",
    };
    let own = if kernel.namespaces {
        "/tmp, /proc and processes of its own"
    } else {
        "no /tmp, no /proc"
    };
    let network = match strict.network {
        Network::Loopback if !kernel.networks => Network::None,
        network => network,
    };
    let calls = if kernel.filters {
        "system calls by seccomp"
    } else {
        "system calls not restricted"
    };
    format!(
        " ({files}, {own}, network {}, {calls})",
        network.config_name()
    )
}

/// Describes how a program runs: its user, sandbox and limits, and the end of its leftover processes.
pub(super) fn describe_start(
    remit: Option<&Remit>,
    options: &CgiOptions,
    program: &Path,
) -> String {
    let uid = remit.map_or_else(effective_uid, |remit| {
        remit.user_for_owner(file_owner(program))
    });
    let ends = match (remit, options.limits.may_stay) {
        (_, true) => "keep running",
        (None, false) => "are killed by the server",
        (Some(_), false) if options.strict.is_some() && kernel().namespaces => {
            "are killed by their helper, and by the kernel if the helper ends"
        }
        (Some(_), false) => "are killed by their helper",
    };
    format!(
        "runs as {}, sandbox = {:?}{}; leftover processes {ends}{}",
        describe_user(uid),
        options.sandbox_name(),
        describe_enforcement(options),
        limits(&options.limits, remit.is_some())
    )
}

/// Names a user that programs run as. `galgo check` has become the server's user, so it notices if both users are the same: then
/// the program can read every file that the server can read.
pub(super) fn describe_user(uid: u32) -> String {
    let name = user_name_of(uid);
    if uid == effective_uid() {
        format!("{name}, the server's own user")
    } else {
        name.to_string()
    }
}

/// Returns the owner of a program's file.
pub(super) fn file_owner(program: &Path) -> u32 {
    program.metadata().map_or(0, |m| m.uid())
}

/// Returns the options of the programs and workers that a route starts.
fn options(route: &Route) -> impl Iterator<Item = &CgiOptions> {
    let of_cgi = route.programs().map(|cgi| &cgi.options);
    let workers = route
        .upstreams()
        .filter(|up| matches!(up.to, To::Workers(_)));
    of_cgi.into_iter().chain(workers.map(|up| &up.options))
}
