//! The thread that looks after certificates.

use std::{collections::HashMap, io, sync::Arc};

use galgo_service::log::ErrorLog;
use tokio::sync::watch;

use super::{answers::Answers, files::CertificateFiles, renewal::Renewal, work::CertificateWork};

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    work: watch::Sender<Arc<CertificateWork>>,
}

impl Keeper {
    /// Starts it; it has nothing to do yet.
    ///
    /// # Errors
    /// There is no thread, or no event loop for it.
    pub fn start(answers: Arc<Answers>, log: ErrorLog) -> io::Result<Self> {
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
        thread
            .spawn(move || runtime.block_on(async { tokio::join!(files.run(), renewal.run()) }))?;
        Ok(Self { work })
    }

    /// Gives it work, in the place of what it had.
    pub fn work(&self, work: CertificateWork) {
        self.work.send_replace(Arc::new(work));
    }
}
