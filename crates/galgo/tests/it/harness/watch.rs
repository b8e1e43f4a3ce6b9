//! The eight points that hold after every fault.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;

use galgo_testkit::{
    Client, RunningTime, Server, eventually,
    process::{children, descriptors, memory, of_site},
    wait_until,
};

/// Longest time for the answer to a health request, whatever else goes on; the machine may be slow. A file system
/// that does not answer (a lease, 45 s) holds up no health request.
const HEALTHY: Duration = Duration::from_secs(30);

/// Watches a server while something goes wrong: health requests on other connections go on all the time.
/// [`Watch::after`] then asserts the points that must hold.
#[derive(Debug)]
pub struct Watch<'s> {
    server: &'s Server,
    descriptors: usize,
    lines: usize,
    resident: u64,
    growth: Option<u64>,
    keeps: usize,
    over: Arc<AtomicBool>,
    prober: Option<JoinHandle<usize>>,
}

impl<'s> Watch<'s> {
    /// Begins to watch the points that must hold afterwards.
    pub fn begin(server: &'s Server) -> Self {
        // A program runs first, so that everything it leaves for good is there. Its line is written when it has
        // exited. The test may set a clock that is too short for this program.
        wait_until("an answer of the first program", || {
            let first = format!("/cgi-bin/t?head&out={}", unique());
            let status = server.get(&first).status;
            assert!(matches!(status, 200 | 504), "{status}");
            wait_until("the line of the first program", || {
                let lines = server.access();
                lines.iter().any(|l| l["target"] == first.as_str())
            });
            status == 200
        });
        let lines = settled(server);
        // Earlier connections are still being closed.
        let sample = |_| {
            std::thread::sleep(Duration::from_millis(1));
            descriptors(server.pid())
        };
        let descriptors = (0..20).map(sample).min().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (address, stop) = (server.address(), over.clone());
        // From here on the peak counts (proc(5), clear_refs).
        let _ = fs::write(format!("/proc/{}/clear_refs", server.pid()), "5");
        let prober = std::thread::spawn(move || {
            let mut probes = 0;
            while !stop.load(Ordering::Relaxed) || probes == 0 {
                let running = RunningTime::start();
                let mut client = Client::connect(address);
                client.get("/health");
                assert_eq!(client.reply().text(), "fine");
                let took = running.elapsed();
                assert!(took < HEALTHY, "health took {took:?}");
                probes += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            probes
        });
        Self {
            server,
            descriptors,
            lines,
            resident: memory(server.pid(), "RssAnon"),
            growth: None,
            keeps: 0,
            over,
            prober: Some(prober),
        }
    }

    /// Lets the server's memory grow by `bytes` at its peak.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.growth = Some(bytes);
        self
    }

    /// Lets the server keep `connections` connections to an application; it closes them after a minute.
    pub fn keeps(mut self, connections: usize) -> Self {
        self.keeps = connections;
        self
    }

    /// Asserts only that health requests were answered all the time.
    pub fn over(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let probes = self.prober.take().unwrap().join();
        assert!(probes.expect("health") > 0);
    }

    /// Asserts the eight points; the access log has one line for each of `outcomes`, in any order. Returns those lines.
    pub fn after(mut self, outcomes: &[&str]) -> Vec<Value> {
        let server = self.server;
        // 1: a health request on another connection was answered, all the time.
        self.over.store(true, Ordering::Relaxed);
        let probes = self.prober.take().unwrap().join();
        assert!(probes.expect("health") > 0);
        // 2: no process is left.
        wait_until("the end of every process of the request", || {
            let left = processes(server);
            left.is_empty()
        });
        // 3: no descriptor is left.
        wait_until("the end of every descriptor of the request", || {
            let may = self.descriptors + kept_loaded() + self.keeps;
            descriptors(server.pid()) <= may
        });
        // 4: memory has not grown by more than the test allows.
        if let Some(growth) = self.growth {
            // The kernel loads and drops the pages of the server's binary as it likes: tens of MiB in a debug build.
            let binary = memory(server.pid(), "RssFile");
            let peak = memory(server.pid(), "VmHWM").saturating_sub(binary);
            assert!(
                peak <= self.resident + growth,
                "{} KiB of memory became {} KiB",
                self.resident >> 10,
                peak >> 10
            );
        }
        // 5: exactly one line names the outcome.
        let lines = eventually("the lines of the access log", || {
            let lines = requests(server).split_off(self.lines);
            (lines.len() >= outcomes.len()).then_some(lines)
        });
        settled(server);
        assert_eq!(
            requests(server).len(),
            self.lines + lines.len(),
            "{lines:#?}"
        );
        let mut named: Vec<_> = lines
            .iter()
            .map(|l| l["outcome"].as_str().unwrap())
            .collect();
        let mut wanted = outcomes.to_vec();
        named.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(named, wanted, "{lines:#?}\n{}", server.errors());
        // 6 and 7, no byte of another response and a visible cut, are for the client to check.
        // 8: nothing panicked.
        assert!(!server.errors().contains("panicked"), "{}", server.errors());
        assert_eq!(server.get("/health").text(), "fine");
        lines
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(prober) = self.prober.take() {
            // The server must answer the last health request before it ends.
            let _ = prober.join();
        }
    }
}

/// Returns how many descriptors templates may take meanwhile: two templates, each with children that wait.
fn kept_loaded() -> usize {
    match std::env::var_os("GALGO_TEST_START") {
        Some(_) => 12,
        None => 0,
    }
}

/// Waits until the access log has caught up; returns how many lines of requests it then has.
fn settled(server: &Server) -> usize {
    // Lines of one event loop stand in their order. If each loop has a line of a request that came later, every earlier line
    // is there. Connections that are open together are spread over event loops, which the ids tell apart.
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.flatten().filter_map(name);
    // A thread that an event loop has just started still has the name of that loop.
    let names: BTreeSet<String> = names.filter(|name| name.starts_with("loop-")).collect();
    let loops = names.len();
    let mut seen = BTreeSet::new();
    wait_until("a health request of each event loop", || {
        let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
        let probe = |client: &mut Client| {
            let target = format!("/health?{}", unique());
            client.get(&target);
            assert_eq!(client.reply().status, 200);
            target
        };
        let targets: Vec<_> = clients.iter_mut().map(probe).collect();
        let lines = eventually("the health requests in the access log", || {
            let mut lines = server.access();
            lines.retain(|l| targets.iter().any(|t| l["target"] == t.as_str()));
            (lines.len() == targets.len()).then_some(lines)
        });
        let event_loop = |l: &Value| l["id"].as_str().unwrap()[..12].to_owned();
        seen.extend(lines.iter().map(event_loop));
        seen.len() >= loops
    });
    requests(server).len()
}

fn unique() -> u64 {
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the lines of the access log, without the lines of health requests.
fn requests(server: &Server) -> Vec<Value> {
    let health = |l: &Value| {
        l["target"]
            .as_str()
            .is_some_and(|t| t.starts_with("/health"))
    };
    server.access().into_iter().filter(|l| !health(l)).collect()
}

/// Returns the processes of the server's programs: children of the server, exited children among them, and processes
/// that the programs left running elsewhere.
pub fn processes(server: &Server) -> Vec<u32> {
    let mut all = of_site(server.site.folder());
    all.extend(children(server.pid()));
    all
}
