//! The store's thread: messages in, answers out, in order. Writes that wait together share one transaction.

use std::{path::PathBuf, thread};

use tokio::sync::{
    mpsc::Receiver,
    oneshot::{self, Sender},
};

use super::{Loaded, OpenError, StoreError, Write, schema::MIGRATIONS, sqlite::Sqlite};

/// Most writes in one transaction: bounds how long the first of them waits for its answer.
const MAX_GROUP: usize = 256;

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Message {
    Write(Write, Sender<Result<(), StoreError>>),
    Load(Sender<Result<Loaded, StoreError>>),
    Close(Sender<()>),
}

/// What the thread drives.
pub(super) trait Engine {
    /// Recovers from an earlier I/O error, if there was one.
    fn recover(&mut self) -> Result<(), StoreError>;
    /// Does the writes in order, all or none. Waits for the disk if one of them has to be durable.
    fn write(&mut self, writes: &[&Write]) -> Result<(), StoreError>;
    /// Reads everything.
    fn load(&mut self) -> Result<Loaded, StoreError>;
    /// House-keeping that no answer has to wait for.
    fn tidy(&mut self);
}

/// Opens the store on a thread of its own, which then runs until all handles are gone or one closes it.
pub(super) async fn start(dir: PathBuf, queue: Receiver<Message>) -> Result<Loaded, OpenError> {
    let file = dir.join(super::FILE);
    let failed = |what: String| OpenError::Failed { file: file.clone(), what };
    let (answer, opened) = oneshot::channel();
    let run = move || {
        let result = Sqlite::open(&dir, MIGRATIONS).and_then(|engine| Ok((engine.load()?, engine)));
        match result {
            Ok((loaded, engine)) => {
                if answer.send(Ok(loaded)).is_ok() {
                    Worker { engine, queue, held: None }.run();
                }
            }
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        }
    };
    thread::Builder::new()
        .name("store".to_owned())
        .spawn(run)
        .map_err(|error| failed(format!("cannot start its thread: {error}")))?;
    opened.await.unwrap_or_else(|_| Err(failed("its thread ended".to_owned())))
}

struct Worker<E> {
    engine: E,
    queue: Receiver<Message>,
    /// Taken from the queue while looking for more writes, but not a write.
    held: Option<Message>,
}

impl<E: Engine> Worker<E> {
    fn run(mut self) {
        while let Some(message) = self.held.take().or_else(|| self.queue.blocking_recv()) {
            match message {
                Message::Write(write, answer) => {
                    let group = self.group(write, answer);
                    self.write(group);
                    self.engine.tidy();
                }
                Message::Load(answer) => {
                    let loaded = self.engine.recover().and_then(|()| self.engine.load());
                    let _ = answer.send(loaded);
                }
                Message::Close(answer) => {
                    // Answered when the file is closed and the lock is gone, so that the next may open it.
                    drop(self);
                    let _ = answer.send(());
                    return;
                }
            }
        }
    }

    fn group(&mut self, write: Write, answer: Sender<Result<(), StoreError>>) -> Group {
        let mut group = vec![(write, answer)];
        while group.len() < MAX_GROUP {
            match self.queue.try_recv() {
                Ok(Message::Write(write, answer)) => group.push((write, answer)),
                Ok(other) => {
                    self.held = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        group
    }

    fn write(&mut self, group: Group) {
        let writes: Vec<&Write> = group.iter().map(|(write, _)| write).collect();
        let together = self.engine.recover().and_then(|()| self.engine.write(&writes));
        if together.is_ok() || group.len() == 1 {
            for (_, answer) in group {
                let _ = answer.send(together.clone());
            }
            return;
        }
        // One of them may be at fault alone: it must not fail the others. What can't be recovered fails all.
        let mut broken = Ok(());
        for (write, answer) in group {
            if broken.is_ok() {
                broken = self.engine.recover();
            }
            let result = broken.clone().and_then(|()| self.engine.write(&[&write]));
            let _ = answer.send(result);
        }
    }
}

type Group = Vec<(Write, Sender<Result<(), StoreError>>)>;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc;

    use super::*;

    /// Records its transactions; refuses those that reserve a revision of `bad`, and can stay broken.
    #[derive(Default)]
    struct Recorder {
        log: Arc<Mutex<Vec<Vec<u64>>>>,
        bad: u64,
        broken: bool,
    }

    impl Engine for Recorder {
        fn recover(&mut self) -> Result<(), StoreError> {
            if self.broken { Err(StoreError::Full) } else { Ok(()) }
        }

        fn write(&mut self, writes: &[&Write]) -> Result<(), StoreError> {
            let revisions: Vec<u64> =
                writes.iter().map(|w| if let Write::Reserve(n) = w { *n } else { 0 }).collect();
            if revisions.contains(&self.bad) {
                return Err(StoreError::Failed("bad".to_owned()));
            }
            self.log.lock().unwrap().push(revisions);
            Ok(())
        }

        fn load(&mut self) -> Result<Loaded, StoreError> {
            self.log.lock().unwrap().push(vec![]);
            Ok(Loaded::default())
        }

        fn tidy(&mut self) {}
    }

    /// Queues writes of these numbers (0: a load), runs the worker over them, returns log and answers.
    fn run(engine: Recorder, numbers: &[u64]) -> (Vec<Vec<u64>>, Vec<Result<(), StoreError>>) {
        let log = engine.log.clone();
        let (send, queue) = mpsc::channel(1000);
        let mut answers = Vec::new();
        for n in numbers {
            if *n == 0 {
                send.try_send(Message::Load(oneshot::channel().0)).unwrap();
            } else {
                let (answer, answered) = oneshot::channel();
                send.try_send(Message::Write(Write::Reserve(*n), answer)).unwrap();
                answers.push(answered);
            }
        }
        drop(send);
        Worker { engine, queue, held: None }.run();
        let answers = answers.into_iter().map(|mut a| a.try_recv().unwrap()).collect();
        let log = log.lock().unwrap().clone();
        (log, answers)
    }

    #[test]
    fn waiting_writes_share_a_transaction_in_order() {
        let (log, answers) = run(Recorder::default(), &[]);
        assert!(log.is_empty() && answers.is_empty());
        let engine = Recorder { bad: u64::MAX, ..Recorder::default() };
        let (log, answers) = run(engine, &[3, 1, 2, 0, 5, 4]);
        assert_eq!(log, [vec![3, 1, 2], vec![], vec![5, 4]]);
        assert!(answers.iter().all(Result::is_ok));
    }

    #[test]
    fn a_group_is_bounded() {
        let engine = Recorder { bad: u64::MAX, ..Recorder::default() };
        let numbers: Vec<u64> = (1..=300).collect();
        let (log, _) = run(engine, &numbers);
        assert_eq!(log.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_GROUP, 300 - MAX_GROUP]);
        assert_eq!(log.concat(), numbers);
    }

    #[test]
    fn a_bad_write_fails_alone() {
        let engine = Recorder { bad: 2, ..Recorder::default() };
        let (log, answers) = run(engine, &[1, 2, 3]);
        assert_eq!(log, [vec![1], vec![3]]);
        assert_eq!(answers, [Ok(()), Err(StoreError::Failed("bad".to_owned())), Ok(())]);
    }

    #[test]
    fn what_cannot_be_recovered_fails_all() {
        let engine = Recorder { broken: true, bad: u64::MAX, ..Recorder::default() };
        let (log, answers) = run(engine, &[1, 2, 3]);
        assert!(log.is_empty());
        assert!(answers.iter().all(|a| *a == Err(StoreError::Full)), "{answers:?}");
    }
}
