//! The thread that looks after certificates.

use std::{collections::HashMap, io, sync::Arc};

use galgo_service::log::ErrorLog;
use tokio::sync::watch;

use super::{answers::Answers, files::CertificateFiles, renewal::Renewal, work::CertificateWork};

/// The certificate thread; dropping this value ends it.
#[derive(Debug)]
pub struct Keeper {
    work: watch::Sender<Arc<CertificateWork>>,
}

impl Keeper {
    /// Starts the thread without any work.
    ///
    /// # Errors
    /// The thread or its event loop cannot be created.
    pub fn start_thread(answers: Arc<Answers>, log: ErrorLog) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (work, told) = watch::channel(Arc::<CertificateWork>::default());
        let files = CertificateFiles {
            log: log.clone(),
            work: told.clone(),
        };
        let renewal = Renewal {
            log,
            answers,
            work: told,
            hosts: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("certificates".into());
        thread.spawn(move || {
            runtime.block_on(async { tokio::join!(files.watch_files(), renewal.renew_when_due()) })
        })?;
        Ok(Self { work })
    }

    /// Replaces the work of the thread.
    pub fn replace_work(&self, work: CertificateWork) {
        self.work.send_replace(Arc::new(work));
    }
}
