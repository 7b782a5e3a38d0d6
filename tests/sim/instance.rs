//! One transactional producer, and its transaction, which borrows it, over many steps of a run.
//!
//! Both live in a future that nothing but [`Instance::ask`] polls: each call is handed in, done at once, and answered. So
//! a transaction can stay open from one step to the next without a thread. Who drops the instance drops the transaction,
//! then the producer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use taffrail::{Delivery, ProducerEpoch, ProducerId, Progress, Result, Transaction, TransactionalProducer};

use super::record::Outgoing;

/// What an instance is asked for.
#[derive(Debug)]
pub(super) enum Call {
    Begin,
    Send(Outgoing),
    Progress(Box<Progress>),
    Commit,
    Abort,
    Drop,
}

/// What it answers.
#[derive(Debug)]
pub(super) enum Answer {
    Begun(Result<(ProducerId, ProducerEpoch)>),
    Sent(Result<Delivery>),
    Progressed(Result<()>),
    Ended(Result<()>),
}

/// A producer that is alive.
pub(super) struct Instance {
    port: Rc<Port>,
    life: Pin<Box<dyn Future<Output = ()>>>,
}

#[derive(Default)]
struct Port {
    call: Cell<Option<Call>>,
    answer: Cell<Option<Answer>>,
}

impl Instance {
    pub(super) fn new(producer: TransactionalProducer) -> Self {
        let port = Rc::new(Port::default());
        let life = Box::pin(live(producer, Rc::clone(&port)));
        Self { port, life }
    }

    /// Has something done, at once.
    pub(super) fn ask(&mut self, call: Call) -> Answer {
        self.port.call.set(Some(call));
        let polled = self.life.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "it lives until it is dropped");
        self.port.answer.take().expect("every call is answered at once")
    }
}

impl Port {
    async fn call(&self) -> Call {
        poll_fn(|_| self.call.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    fn answer(&self, answer: Answer) {
        self.answer.set(Some(answer));
    }
}

async fn live(mut producer: TransactionalProducer, port: Rc<Port>) {
    loop {
        match port.call().await {
            Call::Begin => match producer.begin() {
                Ok(transaction) => {
                    port.answer(Answer::Begun(Ok(transaction.identity())));
                    go_on(transaction, &port).await;
                }
                Err(error) => port.answer(Answer::Begun(Err(error))),
            },
            other => panic!("{other:?} outside of a transaction"),
        }
    }
}

async fn go_on(transaction: Transaction<'_>, port: &Port) {
    loop {
        match port.call().await {
            Call::Send(outgoing) => {
                port.answer(Answer::Sent(transaction.send(outgoing.topic, outgoing.record())));
            }
            Call::Progress(progress) => {
                port.answer(Answer::Progressed(transaction.commit_progress(*progress)));
            }
            Call::Commit => return port.answer(Answer::Ended(transaction.commit())),
            Call::Abort => return port.answer(Answer::Ended(transaction.abort())),
            Call::Drop => {
                drop(transaction);
                return port.answer(Answer::Ended(Ok(())));
            }
            Call::Begin => panic!("a transaction begins inside of another"),
        }
    }
}
