//! Reloads certificate files that certbot or other tools replace while the server runs.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use galgo_io::tls::{Certificate, format_date};
use galgo_service::log::{ErrorLog, Level};
use galgo_spawn::{
    identity::{effective_uid, user_name_of},
    trusted_path::read_all,
};
use tokio::sync::watch;

use super::work::CertificateWork;
use crate::certificates::certificate_settings::{FilesVersion, FromFiles};

/// Interval between checks of the files. A check is two calls of stat(2) for each certificate. A watch would have to
/// follow every link and folder on the way, because certbot's names are links.
const LOOK: Duration = Duration::from_secs(2);

/// The task that checks the certificate files.
pub(super) struct CertificateFiles {
    pub(super) log: ErrorLog,
    pub(super) work: watch::Receiver<Arc<CertificateWork>>,
}

/// State of one certificate that comes from files.
struct WatchedCertificate {
    files: FromFiles,
    /// The version of the files that was last found to be unusable.
    wrong: Option<FilesVersion>,
    /// The log names the reason already.
    said: bool,
}

impl CertificateFiles {
    /// Checks the files until the server ends.
    pub(super) async fn watch_files(mut self) {
        loop {
            let work = self.work.borrow_and_update().clone();
            let known = work.files.iter().cloned().map(|files| WatchedCertificate {
                files,
                wrong: None,
                said: false,
            });
            let mut all: Vec<_> = known.collect();
            let look = async {
                loop {
                    tokio::time::sleep(LOOK).await;
                    // Each certificate is checked, whatever the check of the previous one found.
                    let replaced = all
                        .iter_mut()
                        .filter_map(|one| one.load_if_changed(&self.log).then_some(()));
                    if replaced.count() > 0 {
                        let all = all.iter().map(|one| one.files.certificate.clone());
                        work.shown.show_files(&all.collect::<Vec<_>>());
                    }
                }
            };
            // If there are no files, nothing wakes the thread.
            let changed = if work.files.is_empty() {
                self.work.changed().await
            } else {
                tokio::select! {
                    changed = self.work.changed() => changed,
                    () = look => Ok(()),
                }
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

impl WatchedCertificate {
    /// Whether the files hold another certificate that can be used.
    fn load_if_changed(&mut self, log: &ErrorLog) -> bool {
        let FromFiles { chain, key, .. } = &self.files;
        let now = FilesVersion::from_files(chain, key);
        if now == self.files.version {
            return false;
        }
        let file = chain.display().to_string();
        match self.load_certificate() {
            Ok(certificate) => {
                let until = format_date(certificate.facts().not_after);
                let words = format!("reloaded {file}: the certificate is valid until {until}");
                log.write(Level::Info, "tls", &words);
                self.files.certificate = certificate;
                self.files.version = now;
                (self.wrong, self.said) = (None, false);
                true
            }
            // A chain and its key are replaced one after the other: files that do not fit now may fit soon.
            Err(_) if self.wrong.replace(now) != Some(now) => {
                self.said = false;
                false
            }
            Err(why) => {
                if !std::mem::replace(&mut self.said, true) {
                    let words = format!("{file}: still using the previous certificate: {why}");
                    log.write(Level::Warn, "tls", &words);
                }
                false
            }
        }
    }

    /// Reads the files again. If clients would hardly accept the new certificate, but accept the current one,
    /// returns an error.
    fn load_certificate(&self) -> Result<Certificate, String> {
        let FromFiles { chain, key, .. } = &self.files;
        let read = Certificate::from_pem(&read_pem(chain)?, &read_pem(key)?)?;
        let now = SystemTime::now();
        let doubts = read.doubts(now);
        let before = self.files.certificate.doubts(now);
        match doubts.first() {
            Some(doubt) if before.is_empty() => Err(doubt.clone()),
            _ => Ok(read),
        }
    }
}

fn read_pem(file: &Path) -> Result<Vec<u8>, String> {
    read_all(file).map_err(|e| match e.kind() {
        // Root could read the file at the start.
        io::ErrorKind::PermissionDenied => format!(
            "user {} cannot read {}: restart galgo if the file was replaced",
            user_name_of(effective_uid()),
            file.display()
        ),
        _ => format!("{}: {e}", file.display()),
    })
}
