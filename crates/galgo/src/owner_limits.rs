//! Limits of the programs of one user that run at once, over all routes that have no limit of their own: `max_running` of
//! `[defaults]`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use galgo_handlers::{program_settings::Cgi, script::FoundProgram};
use galgo_service::{admission::ConcurrencyLimit, lock::lock};

/// The limits of users whose programs have been asked for: at most as many as there are owners of files.
#[derive(Debug)]
pub(crate) struct OwnerLimits {
    /// The limit of each user; `None`: users have none.
    most: Option<usize>,
    by_uid: Mutex<HashMap<u32, Arc<ConcurrencyLimit>>>,
}

impl OwnerLimits {
    /// Returns these limits, or those `before` if they are the same: running programs count after a reload, too.
    pub(crate) fn new(most: Option<usize>, before: Option<&Arc<Self>>) -> Arc<Self> {
        let kept = before.filter(|before| before.most == most).cloned();
        kept.unwrap_or_else(|| {
            Arc::new(Self {
                most,
                by_uid: Mutex::default(),
            })
        })
    }

    /// Returns the limit of the user that a program runs as; `None` if there is none, or the program runs as the server's user.
    pub(crate) fn find_limit(
        &self,
        cgi: &Cgi,
        script: &FoundProgram<'_>,
    ) -> Option<Arc<ConcurrencyLimit>> {
        let most = self.most?;
        let remit = cgi.remit.as_ref().filter(|_| cgi.counts_for_user)?;
        let uid = remit.user_for_owner(script.owner);
        let mut all = lock(&self.by_uid);
        let limit = all
            .entry(uid)
            .or_insert_with(|| Arc::new(ConcurrencyLimit::new(most)));
        Some(limit.clone())
    }
}
