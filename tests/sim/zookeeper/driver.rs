//! [`SimServers`]: the shipped seam of a driver, over connections to the model.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold::clock::{Clock, ManualClock};
use leasehold::zookeeper::simulation::{
    Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refused, Servers,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::net::Net;

use super::client::{Client, Order, Phase, Status};
use super::connections::{Ask, Reply};
use super::tree::{Code, One};

/// The servers, as one life of one node sees them.
pub(crate) struct SimServers {
    net: Net,
    clock: Clock,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

struct SimDriver {
    session: i64,
    timeout: Duration,
    status: std::sync::Arc<Status>,
    /// `None` once it was closed.
    orders: Mutex<Option<UnboundedSender<Order>>>,
}

impl SimServers {
    pub(crate) fn new(net: &Net, clock: &ManualClock) -> Self {
        Self {
            net: net.clone(),
            clock: Clock::from(clock.clone()),
            tasks: Mutex::default(),
        }
    }
}

impl Servers for SimServers {
    fn connect(
        &self,
        timeout: Duration,
        ending: Ending,
    ) -> BoxFuture<'_, Result<Box<dyn Driver>, Fault>> {
        let left = ending == Ending::LeftToTimeOut;
        let mut client = Client::new(&self.net, &self.clock, timeout, left);
        Box::pin(async move {
            let line = client.connect().await;
            let line = line.ok_or_else(|| Fault::InDoubt("no server was reached".into()))?;
            let (sender, orders) = unbounded_channel();
            let driver = SimDriver {
                session: client.session,
                timeout,
                status: std::sync::Arc::clone(&client.status),
                orders: Mutex::new(Some(sender)),
            };
            let task = tokio::spawn(client.serve(line, orders));
            let mut tasks = self.tasks.lock();
            tasks.retain(|task| !task.is_finished());
            tasks.push(task);
            let driver: Box<dyn Driver> = Box::new(driver);
            Ok(driver)
        })
    }

    fn disconnect(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

fn unexpected() -> Fault {
    Fault::InDoubt("the model answered with something else".into())
}

/// The path of the root is empty in the model.
fn node(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

impl SimDriver {
    async fn ask(&self, ask: Ask, watcher: Option<oneshot::Sender<()>>) -> Result<Reply, Fault> {
        let (answer, answered) = oneshot::channel();
        {
            let orders = self.orders.lock();
            let orders = orders.as_ref().ok_or(Fault::Expired)?;
            let order = Order {
                ask,
                answer,
                watcher,
            };
            orders.send(order).map_err(|_| Fault::Expired)?;
        }
        answered.await.unwrap_or(Err(Fault::Expired))
    }

    /// The leader's time of a write, or which part of it was refused.
    async fn write_all(&self, ones: Vec<One>) -> Result<LeaderTime, (usize, Result<Code, Fault>)> {
        match self.ask(Ask::Write(ones), None).await {
            Ok(Reply::Done(time)) => Ok(LeaderTime(time)),
            Ok(Reply::Refused(index, code)) => Err((index, Ok(code))),
            Ok(_) => Err((0, Err(unexpected()))),
            Err(fault) => Err((0, Err(fault))),
        }
    }
}

fn refused(reply: Reply) -> Fault {
    match reply {
        Reply::Refused(_, code) => code.fault(),
        _ => unexpected(),
    }
}

impl Driver for SimDriver {
    fn session(&self) -> Option<i64> {
        Some(self.session)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            match self.status.settled(false).await {
                Phase::Over => Err(Fault::Expired),
                _ => Ok(()),
            }
        })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        self.status.settled(true).map(drop).boxed()
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let (ephemeral, sequential) = (kind != Kind::Container, kind == Kind::Sequential);
        let create = One::create(node(path), data.to_vec(), ephemeral, sequential);
        Box::pin(async move {
            match self.ask(Ask::Write(vec![create]), None).await? {
                Reply::Made(made) => Ok(made),
                other => Err(refused(other)),
            }
        })
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        version: Option<i32>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let path = node(path);
        let deleted = self.write_all(vec![One::Delete { path, version }]);
        deleted.map(|done| done.map(drop).map_err(whole)).boxed()
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        Box::pin(async move {
            match self.ask(Ask::Children(node(path)), None).await? {
                Reply::Names(names) => Ok(names),
                other => Err(refused(other)),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        Box::pin(async move {
            match self.ask(Ask::Read(node(path)), None).await? {
                Reply::Node(node) => Ok(node),
                other => Err(refused(other)),
            }
        })
    }

    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        let set = One::Set {
            path: node(path),
            data: data.to_vec(),
            version: None,
        };
        let written = self.write_all(vec![set]);
        written.map(|done| done.map(drop).map_err(whole)).boxed()
    }

    fn watch<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        Box::pin(async move {
            let (watcher, fired) = oneshot::channel::<()>();
            match self.ask(Ask::Watch(node(path), 0), Some(watcher)).await? {
                // The end of the session fires it, too.
                Reply::Node(_) => Ok(fired.map(drop).boxed()),
                other => Err(refused(other)),
            }
        })
    }

    fn sync<'a>(&'a self, _own: &'a str, _path: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match self.ask(Ask::Sync, None).await? {
                Reply::Done(_) => Ok(()),
                other => Err(refused(other)),
            }
        })
    }

    fn beat<'a>(
        &'a self,
        own: &'a str,
        held: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>> {
        let set = One::Set {
            path: node(own),
            data: Vec::new(),
            version: None,
        };
        let check = |path: &String| One::Check {
            path: node(path),
            version: None,
        };
        let ones = std::iter::once(set).chain(held.iter().map(check)).collect();
        Box::pin(async move {
            self.write_all(ones).await.map_err(|refused| match refused {
                (0, Ok(Code::NoNode)) => Missing::Own,
                (_, Ok(Code::NoNode)) => Missing::Held,
                other => Missing::Fault(whole(other)),
            })
        })
    }

    fn change<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        let ones = changes.iter().map(One::of).collect();
        Box::pin(async move {
            match self.write_all(ones).await {
                Ok(_) => Ok(()),
                Err((index, Ok(code))) => Err(Refused::At(index, code.fault())),
                Err((_, Err(fault))) => Err(Refused::Whole(fault)),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        drop(self.orders.lock().take());
        self.ended()
    }
}

fn whole((_, why): (usize, Result<Code, Fault>)) -> Fault {
    why.map_or_else(|fault| fault, Code::fault)
}

impl fmt::Debug for SimServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimServers({})", self.net.node)
    }
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDriver({:x})", self.session)
    }
}
