//! Automatic certificates: the first certificate of each host, and its renewals.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use galgo_io::tls::{Certificate, format_date};
use galgo_service::log::{ErrorLog, Level};
use tokio::sync::watch;

use super::{
    answers::Answers,
    authority::{AcmeClient, OrderFailure, ProofStage, order_failure},
    plan::{self, FailureKind, Window},
    store::Store,
    work::CertificateWork,
};

/// Interval between looks at an order that another server is making.
const OTHERS: Duration = Duration::from_secs(5);
/// Longest sleep: clocks jump and machines are suspended, so due work is looked for at least this
/// often.
const LOOK: Duration = Duration::from_secs(600);
/// Shortest and longest interval between questions for the authority's renewal period.
const ASK: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
/// Pause after the authority could not be asked for its renewal period.
const ASK_AGAIN: Duration = Duration::from_secs(3600);

/// The task that obtains and renews certificates.
pub(super) struct Renewal {
    pub(super) log: ErrorLog,
    pub(super) answers: Arc<Answers>,
    pub(super) work: watch::Receiver<Arc<CertificateWork>>,
    pub(super) hosts: HashMap<String, HostRenewal>,
}

/// State of one host.
#[derive(Default)]
pub(super) struct HostRenewal {
    /// Number of failures of the same kind in a row.
    failures: u32,
    failed: Option<FailureKind>,
    /// The last refused proof was given in a TLS handshake: the next one is given over HTTP.
    over_http: bool,
    /// No order starts before this time.
    not_before: Option<SystemTime>,
    /// The period in which the authority wants the certificate to be renewed.
    suggested: Option<Window>,
    /// The time of the next question for that period.
    ask_at: Option<SystemTime>,
}

impl Renewal {
    /// Works until the server ends.
    pub(super) async fn renew_when_due(mut self) {
        let mut authority = None;
        loop {
            let work = self.work.borrow_and_update().clone();
            let next = match (&work.automatic, &work.store) {
                (Some(settings), Some(store)) => {
                    let known = authority.take();
                    let known = known.filter(|known: &AcmeClient| known.settings == *settings);
                    let known = known.unwrap_or_else(|| AcmeClient::new(settings.clone()));
                    self.renew_due_hosts(authority.insert(known), &work, store)
                        .await
                }
                _ => LOOK,
            };
            tokio::select! {
                changed = self.work.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(next.min(LOOK)) => {}
            }
        }
    }

    /// Does the work that is due. Returns the time until more work is due.
    async fn renew_due_hosts(
        &mut self,
        authority: &mut AcmeClient,
        work: &CertificateWork,
        store: &Store,
    ) -> Duration {
        let hosts = authority.settings.hosts.clone();
        let mut next = LOOK;
        for host in &hosts {
            self.ask_renewal_window(authority, work, store, host).await;
            if self.renewal_due_at(work, host) <= SystemTime::now() {
                match store.try_lock_orders() {
                    Ok(Some(_held)) => self.obtain(authority, work, store, host).await,
                    Ok(None) => self.adopt_or_wait(work, store, host),
                    Err(e) => self.record_failure(host, &e.into()),
                }
            }
            let known = self.hosts.entry(host.clone()).or_default();
            let ask = known.ask_at.unwrap_or(SystemTime::now() + LOOK);
            let due = self.renewal_due_at(work, host).min(ask);
            let wait = due.duration_since(SystemTime::now());
            next = next.min(wait.unwrap_or_default());
        }
        next
    }

    /// Returns the time at which a certificate for a host is to be ordered.
    fn renewal_due_at(&self, work: &CertificateWork, host: &str) -> SystemTime {
        let known = self.hosts.get(host);
        let due = match work.shown.automatic_certificate(host) {
            None => SystemTime::UNIX_EPOCH,
            Some(certificate) => {
                let facts = certificate.facts();
                let suggested = known.and_then(|known| known.suggested);
                plan::renewal_time(facts, suggested, plan::chance(&facts.serial))
            }
        };
        let earliest = known.and_then(|known| known.not_before);
        earliest.map_or(due, |earliest| due.max(earliest))
    }

    /// Asks the authority for its renewal period, if the question is due.
    async fn ask_renewal_window(
        &mut self,
        authority: &mut AcmeClient,
        work: &CertificateWork,
        store: &Store,
        host: &str,
    ) {
        let (now, Some(certificate)) = (SystemTime::now(), work.shown.automatic_certificate(host))
        else {
            return;
        };
        let known = self.hosts.entry(host.to_owned()).or_default();
        if known.ask_at.is_some_and(|at| at > now) {
            return;
        }
        let again = match authority
            .fetch_renewal_window(store, certificate.facts())
            .await
        {
            Ok(Some((window, again))) => {
                known.suggested = Some(window);
                again.clamp(ASK.0, ASK.1)
            }
            Ok(None) => ASK.1,
            // The rule without a suggestion does as well, and an order would report the problem.
            Err(_) => ASK_AGAIN,
        };
        known.ask_at = Some(SystemTime::now() + again);
    }

    /// Orders a certificate, and shows it.
    async fn obtain(
        &mut self,
        authority: &mut AcmeClient,
        work: &CertificateWork,
        store: &Store,
        host: &str,
    ) {
        // Another server may have obtained a certificate already.
        if self.adopt_stored(work, store, host) {
            return;
        }
        let before = work.shown.automatic_certificate(host);
        let over_http = self.hosts.get(host).is_some_and(|known| known.over_http);
        let stage = ProofStage {
            shown: &work.shown,
            answers: &self.answers,
            over_http: work.http && (over_http || work.required),
        };
        let facts = before.as_ref().map(Certificate::facts);
        let ordered = authority.order_certificate(store, host, facts, stage).await;
        let read = ordered.and_then(|pem| usable(&pem, host).map(|read| (pem, read)));
        match read {
            Ok((pem, certificate)) => {
                if let Err(words) = store.store_certificate(host, &pem) {
                    let lost =
                        format!("{words}. After a restart, galgo orders the certificate again");
                    self.log.write(Level::Error, "tls", &lost);
                }
                self.install_certificate(work, host, certificate, "was issued");
            }
            Err(failure) => self.record_failure(host, &failure),
        }
    }

    /// Waits because another server is ordering: this server may use the certificate of that order,
    /// too.
    fn adopt_or_wait(&mut self, work: &CertificateWork, store: &Store, host: &str) {
        if !self.adopt_stored(work, store, host) {
            let known = self.hosts.entry(host.to_owned()).or_default();
            known.not_before = Some(SystemTime::now() + OTHERS);
        }
    }

    /// Shows the stored certificate, if it is newer.
    fn adopt_stored(&mut self, work: &CertificateWork, store: &Store, host: &str) -> bool {
        let shown = work
            .shown
            .automatic_certificate(host)
            .map(|one| one.facts().not_after);
        let stored = store.load_certificate(host).ok().flatten();
        let newer = stored.filter(|one| shown.is_none_or(|shown| one.facts().not_after > shown));
        let Some(newer) = newer else {
            return false;
        };
        self.install_certificate(work, host, newer, "was stored by another galgo server");
        true
    }

    fn install_certificate(
        &mut self,
        work: &CertificateWork,
        host: &str,
        certificate: Certificate,
        how: &str,
    ) {
        let until = format_date(certificate.facts().not_after);
        let words = format!("the certificate of {host} {how}: valid until {until}");
        self.log.write(Level::Info, "tls", &words);
        let known = HostRenewal {
            not_before: Some(SystemTime::now() + plan::min_keep_time(certificate.facts())),
            ..HostRenewal::default()
        };
        self.hosts.insert(host.to_owned(), known);
        // The configuration may have been reloaded meanwhile.
        work.shown.show_automatic(host, certificate.clone());
        self.work.borrow().shown.show_automatic(host, certificate);
    }

    fn record_failure(&mut self, host: &str, failure: &OrderFailure) {
        let known = self.hosts.entry(host.to_owned()).or_default();
        if known.failed.replace(failure.failed) != Some(failure.failed) {
            known.failures = 0;
        }
        known.failures = known.failures.saturating_add(1);
        if failure.failed == FailureKind::Refused {
            known.over_http ^= true;
        }
        let chance = plan::chance((host, known.failures));
        let pause = plan::retry_delay(failure.failed, known.failures, chance);
        known.not_before = Some(SystemTime::now() + pause);
        let work = self.work.borrow();
        let authority = work
            .automatic
            .as_ref()
            .map_or("", |automatic| &automatic.authority);
        let words = format!(
            "no certificate for {host}: {}; next try at {authority} in {} s",
            failure.words,
            pause.as_secs()
        );
        drop(work);
        self.log.write(Level::Error, "tls", &words);
    }
}

/// Returns the authority's certificate, if it is the certificate that was ordered.
fn usable(pem: &str, host: &str) -> Result<Certificate, OrderFailure> {
    let wrong = |words: String| {
        let words = format!("the authority sent an unusable certificate: {words}");
        order_failure(FailureKind::Refused, words)
    };
    let read = Certificate::from_pem(pem.as_bytes(), pem.as_bytes()).map_err(wrong)?;
    if read.host_names().iter().any(|name| name == host) {
        Ok(read)
    } else {
        Err(wrong(format!("it is for {}", read.host_names().join(", "))))
    }
}

impl From<std::io::Error> for OrderFailure {
    fn from(e: std::io::Error) -> Self {
        order_failure(FailureKind::Unreachable, format!("the state folder: {e}"))
    }
}
