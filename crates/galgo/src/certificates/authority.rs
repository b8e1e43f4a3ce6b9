//! The conversation with the authority (RFC 8555), by the crate `instant-acme`.

use std::{
    error::Error as StdError,
    iter,
    time::{Duration, SystemTime},
};

use galgo_io::tls::{Facts, Shown};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, CertificateIdentifier,
    ChallengeType, Error, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use tokio::time::timeout;

use super::{
    answers::Answers,
    plan::{FailureKind, Window},
    store::{ACCOUNT, Store},
};
use crate::certificates::certificate_settings::Automatic;

/// Time limit of one order, from the first request to the certificate.
const ORDER: Duration = Duration::from_secs(300);
/// Time limit of any other request to the authority.
const OTHER: Duration = Duration::from_secs(60);
/// Interval between questions for the authority's decision, if the authority does not name one.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(120));

/// The client of an authority, with the account that was last used.
pub(super) struct AcmeClient {
    pub(super) settings: Automatic,
    account: Option<Account>,
}

/// The ways in which proofs can be given.
#[derive(Clone, Copy)]
pub(super) struct ProofStage<'s> {
    pub(super) shown: &'s Shown,
    pub(super) answers: &'s Answers,
    /// Proofs are given in the answer to a request (RFC 8555, 8.3), for which the authority comes to port 80. Otherwise they
    /// are given in a TLS handshake (RFC 8737), on port 443.
    pub(super) over_http: bool,
}

/// The reason why there is no certificate, in words, and the kind of failure.
#[derive(Debug)]
pub(super) struct OrderFailure {
    pub(super) failed: FailureKind,
    pub(super) words: String,
}

type Done<T> = Result<T, OrderFailure>;

impl AcmeClient {
    pub(super) fn new(settings: Automatic) -> Self {
        Self {
            settings,
            account: None,
        }
    }

    /// Orders a certificate that replaces the certificate with these facts. Returns the key and the chain in PEM.
    pub(super) async fn order_certificate(
        &mut self,
        store: &Store,
        host: &str,
        replaces: Option<&Facts>,
        stage: ProofStage<'_>,
    ) -> Done<String> {
        let account = self.account(store).await?.clone();
        let order = obtain(&account, host, replaces, stage);
        let done = timeout(ORDER, order).await;
        let done = done.unwrap_or_else(|_| Err(timeout_failure(&self.settings)));
        // If the authority does not know the account any more, the next order creates a new account.
        if let Err(failure) = &done
            && failure.words.contains("accountDoesNotExist")
        {
            self.account = None;
            store.remove(ACCOUNT);
        }
        done
    }

    /// Returns the period in which the authority suggests to renew a certificate (RFC 9773), and the time until the next
    /// question. `None`: this authority never suggests a period.
    pub(super) async fn fetch_renewal_window(
        &mut self,
        store: &Store,
        facts: &Facts,
    ) -> Done<Option<(Window, Duration)>> {
        let Some(id) = identifier(facts) else {
            return Ok(None);
        };
        let account = self.account(store).await?;
        match timeout(OTHER, account.renewal_info(&id)).await {
            Err(_) => Err(timeout_failure(&self.settings)),
            Ok(Err(Error::Unsupported(_))) => Ok(None),
            Ok(Err(e)) => Err(e.into()),
            Ok(Ok((info, again))) => {
                let at = |seconds: i64| {
                    let seconds = u64::try_from(seconds).unwrap_or_default();
                    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
                };
                let window = info.suggested_window;
                let (start, end) = (window.start, window.end);
                let window = (at(start.unix_timestamp()), at(end.unix_timestamp()));
                Ok(Some((window, again)))
            }
        }
    }

    /// Returns the stored account, or creates a new one.
    async fn account(&mut self, store: &Store) -> Done<&Account> {
        let account = match self.account.take() {
            Some(account) => account,
            None => {
                let account = timeout(OTHER, self.new_account(store)).await;
                account.unwrap_or_else(|_| Err(timeout_failure(&self.settings)))?
            }
        };
        Ok(self.account.insert(account))
    }

    async fn new_account(&self, store: &Store) -> Done<Account> {
        let stored = store.read(ACCOUNT).map_err(|e| Error::Other(e.into()))?;
        let stored = stored.and_then(|json| serde_json::from_slice(&json).ok());
        if let Some(credentials) = stored {
            let account = self.client()?.from_credentials(credentials).await;
            return account.map_err(OrderFailure::from);
        }
        let contact = self.settings.contact.as_deref();
        let new = NewAccount {
            contact: contact.as_slice(),
            // By setting `automatic` an operator agrees to the terms: the documentation says so.
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.authority.clone();
        let made = self.client()?.create(&new, directory, None).await;
        let (account, credentials): (_, AccountCredentials) = made?;
        let json = serde_json::to_vec(&credentials).map_err(Error::from)?;
        store
            .write(ACCOUNT, &json)
            .map_err(|e| Error::Other(e.into()))?;
        Ok(account)
    }

    fn client(&self) -> Result<AccountBuilder, Error> {
        match &self.settings.authority_ca {
            Some(file) => Account::builder_with_root(file),
            None => Account::builder(),
        }
    }
}

async fn obtain(
    account: &Account,
    host: &str,
    replaces: Option<&Facts>,
    stage: ProofStage<'_>,
) -> Done<String> {
    let hosts = [Identifier::Dns(host.to_owned())];
    let plain = NewOrder::new(&hosts);
    let ordered = match replaces.and_then(identifier) {
        // An authority may not know the certificate that is replaced, or may not support the field `replaces`.
        Some(id) => match account.new_order(&NewOrder::new(&hosts).replaces(id)).await {
            Err(Error::Api(problem)) if !has_problem_type(&problem, ":rateLimited") => {
                account.new_order(&plain).await
            }
            Err(Error::Unsupported(_) | Error::Other(_)) => account.new_order(&plain).await,
            ordered => ordered,
        },
        None => account.new_order(&plain).await,
    };
    let mut order = ordered?;
    let mut given = Given {
        host,
        stage,
        tokens: Vec::new(),
    };
    respond_to_challenges(&mut order, &mut given).await?;
    let ready = order.poll_ready(&POLL).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        return Err(refused(&mut order, ready).await);
    }
    drop(given);
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&POLL).await?;
    Ok(key + &chain)
}

/// Proofs that the authority can ask for until this value is dropped.
struct Given<'g> {
    host: &'g str,
    stage: ProofStage<'g>,
    tokens: Vec<String>,
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.stage.shown.remove_proof(self.host);
        self.tokens
            .iter()
            .for_each(|token| self.stage.answers.remove_proof(token));
    }
}

/// Prepares the proofs that the order asks for, and tells the authority that they are ready.
async fn respond_to_challenges(order: &mut Order, given: &mut Given<'_>) -> Done<()> {
    let mut all = order.authorizations();
    while let Some(authorization) = all.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let kind = if given.stage.over_http {
            ChallengeType::Http01
        } else {
            ChallengeType::TlsAlpn01
        };
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            let words = format!("the authority offers no {kind:?} challenge");
            return Err(order_failure(FailureKind::Refused, words));
        };
        let key = challenge.key_authorization();
        if given.stage.over_http {
            given.tokens.push(challenge.token.clone());
            given
                .stage
                .answers
                .add_proof(&challenge.token, key.as_str());
        } else {
            let digest = key.digest();
            let proof = given.stage.shown.publish_proof(given.host, digest.as_ref());
            proof.map_err(|words| order_failure(FailureKind::Refused, words))?;
        }
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Returns the reason why an order was refused: the authorizations know it best.
async fn refused(order: &mut Order, ready: Result<OrderStatus, Error>) -> OrderFailure {
    let mut all = order.authorizations();
    while let Some(Ok(mut authorization)) = all.next().await {
        let Ok(state) = authorization.refresh().await else {
            continue;
        };
        let mut errors = state.challenges.iter().filter_map(|c| c.error.as_ref());
        if let Some(problem) = errors.next() {
            return Error::Api(problem.clone()).into();
        }
    }
    match ready {
        Err(e) => e.into(),
        Ok(_) => order_failure(FailureKind::Refused, "the authority refused the order"),
    }
}

/// Returns the identifier by which the authority knows a certificate (RFC 9773, 4.1).
fn identifier(facts: &Facts) -> Option<CertificateIdentifier<'static>> {
    let key = facts.authority_key.as_deref()?;
    let (key, serial) = (key.into(), facts.serial.as_slice().into());
    Some(CertificateIdentifier::new(key, serial).into_owned())
}

fn timeout_failure(settings: &Automatic) -> OrderFailure {
    let words = format!("{} took too long", settings.authority);
    order_failure(FailureKind::Unreachable, words)
}

pub(super) fn order_failure(failed: FailureKind, words: impl Into<String>) -> OrderFailure {
    let words = words.into();
    OrderFailure { failed, words }
}

/// Whether a problem is of this kind (RFC 8555, 6.7).
fn has_problem_type(problem: &instant_acme::Problem, kind: &str) -> bool {
    let own = problem.r#type.as_deref();
    own.is_some_and(|own| own.ends_with(kind))
}

impl From<Error> for OrderFailure {
    fn from(e: Error) -> Self {
        let failed = match &e {
            Error::Api(problem) if has_problem_type(problem, ":rateLimited") => {
                FailureKind::Limited
            }
            Error::Api(problem) if has_problem_type(problem, ":badNonce") => {
                FailureKind::Unreachable
            }
            Error::Api(problem) if has_problem_type(problem, ":serverInternal") => {
                FailureKind::Unreachable
            }
            Error::Api(_) => FailureKind::Refused,
            _ => FailureKind::Unreachable,
        };
        // The sources of an error say more: "client error (Connect)", then "connection refused".
        let mut words = e.to_string();
        for deeper in iter::successors(e.source(), |&cause| cause.source()) {
            let more = deeper.to_string();
            if !words.contains(&more) {
                words = format!("{words}: {more}");
            }
        }
        order_failure(failed, words)
    }
}
