//! The thread that trains.

use std::sync::Arc;

use tokio::{
    sync::Mutex,
    task::{JoinError, spawn_blocking},
};

/// Runs one thing at a time, beside the runtime. What is under way cannot be interrupted: when nobody waits for it any more,
/// what comes next waits until it is done.
#[derive(Clone, Default)]
pub(super) struct TrainingThread(Arc<Mutex<()>>);

impl TrainingThread {
    /// Runs this once the thread is free. What is cancelled before is not run.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.0.clone().lock_owned().await;
        spawn_blocking(move || {
            let _turn = turn;
            work()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use super::*;

    #[tokio::test]
    async fn what_nobody_waits_for_has_the_thread_until_it_is_done_and_what_waited_for_it_is_not_run_once_cancelled() {
        let thread = TrainingThread::default();
        let (tell_begun, begun) = tokio::sync::oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let done = Arc::new(AtomicU32::new(0));
        let run = |thread: &TrainingThread, work: Box<dyn FnOnce() + Send>| {
            let thread = thread.clone();
            tokio::spawn(async move { thread.run(work).await.unwrap() })
        };
        let add = |value| {
            let done = done.clone();
            move || {
                done.fetch_add(value, Ordering::SeqCst);
            }
        };
        let add_last = add(1);
        let first = run(
            &thread,
            Box::new(move || {
                tell_begun.send(()).unwrap();
                ended.recv().unwrap();
                add_last();
            }),
        );
        begun.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let cancelled = run(&thread, Box::new(add(10)));
        tokio::task::yield_now().await;
        cancelled.abort();
        let seen = done.clone();
        let last = thread.run(move || seen.load(Ordering::SeqCst));
        end.send(()).unwrap();
        assert_eq!(last.await.unwrap(), 1);
    }
}
