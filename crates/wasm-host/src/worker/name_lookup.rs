//! Host names for components. getaddrinfo(3) waits for name servers that may not answer, and cannot be ended. So each lookup has a
//! thread of its own, of a bounded number, and a deadline. Beyond both the guest gets `temporary-resolver-failure`.

use std::{
    net::{IpAddr, ToSocketAddrs},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Waker},
    thread,
    time::Duration,
    vec,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use wasmtime::{
    Result, StoreContextMut,
    component::{Linker, Resource, ResourceType},
};
use wasmtime_wasi::{
    WasiView, async_trait,
    p2::{
        Network, Pollable,
        bindings::sockets::network::{ErrorCode, IpAddress},
        subscribe,
    },
};

/// The interface that wasmtime-wasi offers, and this module replaces.
const INTERFACE: &str = "wasi:sockets/ip-name-lookup@0.2.12";
/// Lookups of all instances at once.
const MOST: usize = 64;
/// Time limit of a lookup.
const PATIENCE: Duration = Duration::from_secs(5);

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Counts a lookup until its thread ends.
struct LookupPermit;

impl LookupPermit {
    fn take() -> Option<Self> {
        let (running, permit) = (RUNNING.fetch_add(1, Ordering::SeqCst), Self);
        (running < MOST).then_some(permit)
    }
}

impl Drop for LookupPermit {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

type FoundAddresses = Result<vec::IntoIter<IpAddr>, ErrorCode>;

/// A lookup, and then its addresses that the guest has not taken.
enum NameLookup {
    Running(oneshot::Receiver<FoundAddresses>, Instant),
    Done(FoundAddresses),
}

fn start_lookup(name: &str) -> Result<NameLookup, ErrorCode> {
    let known = |ip| Ok(NameLookup::Done(Ok(vec![ip].into_iter())));
    let host = match (url::Host::parse(name), name.parse()) {
        (Ok(url::Host::Domain(host)), _) => host,
        (Ok(url::Host::Ipv4(ip)), _) => return known(ip.into()),
        (Ok(url::Host::Ipv6(ip)), _) | (Err(_), Ok(ip)) => return known(ip.into()),
        (Err(_), Err(_)) => return Err(ErrorCode::InvalidArgument),
    };
    let permit = LookupPermit::take().ok_or(ErrorCode::TemporaryResolverFailure)?;
    let (tell, found) = oneshot::channel();
    let started = thread::Builder::new().name("name".into()).spawn(move || {
        let _permit = permit;
        let _ = tell.send(look_up(&host));
    });
    started.map_err(|_| ErrorCode::TemporaryResolverFailure)?;
    Ok(NameLookup::Running(found, Instant::now() + PATIENCE))
}

fn look_up(host: &str) -> FoundAddresses {
    let found = (host, 0).to_socket_addrs().map_err(|e| {
        // gai_strerror(EAI_AGAIN): the standard library keeps no code.
        if e.to_string().contains("Temporary failure") {
            ErrorCode::TemporaryResolverFailure
        } else {
            ErrorCode::NameUnresolvable
        }
    })?;
    let found = found.map(|address| address.ip().to_canonical());
    Ok(found.collect::<Vec<_>>().into_iter())
}

#[async_trait]
impl Pollable for NameLookup {
    async fn ready(&mut self) {
        if let Self::Running(found, until) = self {
            let found = timeout_at(*until, found).await.ok().and_then(Result::ok);
            *self = Self::Done(found.unwrap_or(Err(ErrorCode::TemporaryResolverFailure)));
        }
    }
}

impl NameLookup {
    fn next_address(&mut self) -> Result<Option<IpAddress>, ErrorCode> {
        // Asks without waiting.
        let _ = pin!(self.ready()).poll(&mut Context::from_waker(Waker::noop()));
        match self {
            Self::Running(..) => Err(ErrorCode::WouldBlock),
            Self::Done(Ok(addresses)) => Ok(addresses.next().map(IpAddress::from)),
            Self::Done(Err(code)) => Err(*code),
        }
    }
}

/// Replaces the lookups of wasmtime-wasi, which are not bounded. `is_allowed`: the instance may look names up.
pub(super) fn add_to_linker<T: WasiView + 'static>(
    linker: &mut Linker<T>,
    is_allowed: fn(&T) -> bool,
) -> Result<()> {
    linker.allow_shadowing(true);
    let mut names = linker.instance(INTERFACE)?;
    let stream = ResourceType::host::<NameLookup>();
    names.resource("resolve-address-stream", stream, |mut store, number| {
        let lookup = Resource::<NameLookup>::new_own(number);
        store.data_mut().ctx().table.delete(lookup)?;
        Ok(())
    })?;
    names.func_wrap(
        "resolve-addresses",
        move |mut store: StoreContextMut<'_, T>, (_, name): (Resource<Network>, String)| {
            let started = if is_allowed(store.data()) {
                start_lookup(&name)
            } else {
                Err(ErrorCode::PermanentResolverFailure)
            };
            let table = store.data_mut().ctx().table;
            let started = started.map(|lookup| table.push(lookup));
            Ok((started.map_or_else(|code| Ok(Err(code)), |pushed| pushed.map(Ok))?,))
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, T>, (lookup,): (Resource<NameLookup>,)| {
            let lookup = store.data_mut().ctx().table.get_mut(&lookup)?;
            Ok((lookup.next_address(),))
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, T>, (lookup,): (Resource<NameLookup>,)| {
            Ok((subscribe(store.data_mut().ctx().table, lookup)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
