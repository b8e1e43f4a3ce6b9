//! The system calls that a strict sandbox allows. Calls that are not listed get ENOSYS, as from an older kernel, so that a C
//! library falls back to an older call. Calls in [`REFUSED`](super::calls::REFUSED) get EPERM.

macro_rules! allowed {
    ($_why:literal: $($call:ident)*) => {
        &[$(libc::$call),*]
    };
}

/// The allowed calls, by purpose.
pub(super) const ALLOWED: &[&[libc::c_long]] = &[
    allowed!("memory": SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_mincore SYS_msync SYS_mlock
        SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_membarrier SYS_memfd_create SYS_get_mempolicy
        SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_rseq),
    allowed!("descriptors": SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
        SYS_preadv2 SYS_pwritev2 SYS_lseek SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_ioctl SYS_flock
        SYS_pipe2 SYS_splice SYS_tee SYS_vmsplice SYS_sendfile SYS_copy_file_range SYS_readahead SYS_fadvise64
        SYS_fallocate SYS_ftruncate SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_syncfs SYS_sync SYS_eventfd2
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6 SYS_inotify_init1
        SYS_inotify_add_watch SYS_inotify_rm_watch SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_cancel
        SYS_io_destroy),
    allowed!("files": SYS_openat SYS_openat2 SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_getdents64
        SYS_readlinkat SYS_faccessat SYS_faccessat2 SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat
        SYS_symlinkat SYS_mknodat SYS_truncate SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat
        SYS_umask SYS_getcwd SYS_chdir SYS_fchdir SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr
        SYS_llistxattr SYS_flistxattr SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_removexattr SYS_lremovexattr
        SYS_fremovexattr SYS_name_to_handle_at),
    allowed!("processes and threads": SYS_clone SYS_unshare SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4
        SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid
        SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_futex SYS_set_robust_list
        SYS_get_robust_list SYS_set_tid_address SYS_restart_syscall SYS_prctl SYS_getrusage SYS_getrlimit
        SYS_setrlimit SYS_prlimit64 SYS_getpriority SYS_setpriority SYS_sched_yield SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam SYS_sched_getscheduler SYS_sched_setscheduler
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_sched_getattr
        SYS_sched_setattr SYS_ioprio_get SYS_ioprio_set SYS_getcpu),
    allowed!("signals and clocks": SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigreturn
        SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_signalfd4
        SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_times SYS_getitimer
        SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
        SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime),
    allowed!("who one is; a program without privileges changes none of it": SYS_getuid SYS_geteuid SYS_getgid SYS_getegid
        SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid
        SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset SYS_uname SYS_sysinfo
        SYS_getrandom SYS_personality),
    allowed!("sockets; which, is decided as they are made": SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4
        SYS_connect SYS_getsockname SYS_getpeername SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg
        SYS_recvmmsg SYS_setsockopt SYS_getsockopt SYS_shutdown),
    allowed!("memory and messages that processes share (ipc(7))": SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget
        SYS_semop SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink
        SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr),
    allowed!("further sandboxes": SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule
        SYS_landlock_restrict_self),
    #[cfg(target_arch = "x86_64")]
    allowed!("the same, as x86 has had it from the beginning": SYS_open SYS_creat SYS_stat SYS_lstat SYS_access
        SYS_readlink SYS_mkdir SYS_rmdir SYS_unlink SYS_rename SYS_link SYS_symlink SYS_mknod SYS_chmod SYS_chown
        SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_getdents SYS_dup2 SYS_pipe SYS_poll SYS_select
        SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_inotify_init SYS_fork SYS_vfork SYS_getpgrp
        SYS_alarm SYS_pause SYS_time SYS_arch_prctl),
];
