//! The whole system: its states, its steps, and what must always hold.

use stateright::{Model, Property};

use crate::client::{Client, Move, Phase};
use crate::network::{IN_FLIGHT, Message};
use crate::rules::Rules;
use crate::store::{Resource, Store};
use crate::{LEASE, TICKS, TTL};

/// The system under some rules.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Those that are kept.
    pub rules: Rules,
}

/// Everything at one instant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub now: u8,
    pub clients: [Client; 2],
    pub store: Store,
    pub resource: Resource,
    /// In order, so that states which differ in nothing else are one.
    pub network: Vec<Message>,
}

/// One step of the system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Tick,
    Client(u8, Move),
    Deliver(Message),
    Lose(Message),
    Double(Message),
}

impl State {
    fn send(&mut self, message: Option<Message>) {
        self.network.extend(message);
        self.network.sort_unstable();
    }

    fn remove(&mut self, message: Message) {
        if let Some(at) = self.network.iter().position(|other| *other == message) {
            self.network.remove(at);
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        const { assert!(LEASE < TTL) };
        vec![State {
            now: 0,
            clients: [Client::default(); 2],
            store: Store::default(),
            resource: Resource::default(),
            network: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < TICKS {
            actions.push(Action::Tick);
        }
        let has_room = state.network.len() < IN_FLIGHT;
        for (id, client) in (0..).zip(&state.clients) {
            let mut moves = Vec::new();
            client.moves(&self.rules, &mut moves);
            let sends = |chosen: &Move| !matches!(chosen, Move::GiveUp | Move::Check);
            // One renewal at a time.
            let renews = state.network.iter().any(|message| {
                matches!(message, Message::Renew { client: of, .. } | Message::Renewed { client: of, .. } if *of == id)
            });
            moves.retain(|chosen| has_room || !sends(chosen));
            moves.retain(|chosen| !(renews && *chosen == Move::Renew));
            actions.extend(moves.into_iter().map(|chosen| Action::Client(id, chosen)));
        }
        let mut messages = state.network.clone();
        messages.dedup();
        for message in messages {
            actions.push(Action::Deliver(message));
            actions.push(Action::Lose(message));
            if has_room && message.is_request() {
                actions.push(Action::Double(message));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Client(id, chosen) => {
                let client = &mut state.clients[usize::from(id)];
                let message = client.make(id, chosen, state.now, &self.rules);
                state.send(message);
            }
            Action::Lose(message) => state.remove(message),
            Action::Double(message) => state.send(Some(message)),
            Action::Deliver(message) => {
                state.remove(message);
                match message {
                    Message::Acquire { .. } | Message::Renew { .. } | Message::Release { .. } => {
                        let answer = state.store.execute(message, state.now, &self.rules);
                        state.send(answer);
                    }
                    Message::Raise { .. } | Message::Read { .. } | Message::Write { .. } => {
                        let answer = state.resource.execute(message, &self.rules);
                        state.send(answer);
                    }
                    Message::Granted { client, .. }
                    | Message::Renewed { client, .. }
                    | Message::Raised { client, .. }
                    | Message::WasRead { client, .. }
                    | Message::Answered { client, .. } => {
                        let client = &mut state.clients[usize::from(client)];
                        client.take(message, state.now, &self.rules);
                    }
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one believes", |_, state: &State| {
                let believes = |client: &&Client| client.believes(state.now);
                state.clients.iter().filter(believes).count() < 2
            }),
            Property::always("no stale write", |_, state: &State| {
                !state.resource.has_stale_write
            }),
            Property::always("a lapse is final", |_, state: &State| {
                let revived = |client: &Client| {
                    matches!(
                        client.phase,
                        Phase::Held {
                            saw_revived: true,
                            ..
                        }
                    )
                };
                !state.clients.iter().any(revived)
            }),
            Property::sometimes("two have written", |_, state: &State| {
                state.resource.writes == 2
            }),
        ]
    }
}
