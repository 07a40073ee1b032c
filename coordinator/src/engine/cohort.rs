//! The clients of one round: who has answered, whose turn it is.

use std::time::Duration;

use selvedge_protocols::{ClientName, update::Rejection};

/// Where a member is in the round.
#[derive(Debug)]
pub(super) enum Status<Answer> {
    /// It was asked, and has not answered.
    Asked,
    /// It has an answer that has not been asked for yet.
    Offered,
    /// Its answer is being received.
    Receiving,
    /// Its answer waits for those before it.
    Held(Answer),
    /// Its answer was taken.
    Taken,
    /// It will not be heard of in this round.
    Failed,
}

/// One client of the cohort.
#[derive(Debug)]
pub(super) struct Member<Answer> {
    pub(super) name: ClientName,
    pub(super) status: Status<Answer>,
    /// Since when its connection has been lost.
    pub(super) lost: Option<Duration>,
}

impl<Answer> Member<Answer> {
    /// Whether an answer may still come.
    fn is_open(&self) -> bool {
        matches!(self.status, Status::Asked | Status::Offered | Status::Receiving)
    }
}

/// The clients of one round, in the order of their names, and the first whose answer has not been taken.
#[derive(Debug)]
pub(super) struct Cohort<Answer> {
    pub(super) members: Vec<Member<Answer>>,
    next: usize,
    deadline: Duration,
    allowed: Duration,
}

impl<Answer> Cohort<Answer> {
    /// A cohort that has just been asked, and is allowed so much time.
    pub(super) fn new(names: Vec<ClientName>, now: Duration, allowed: Duration) -> Self {
        let member = |name| Member {
            name,
            status: Status::Asked,
            lost: None,
        };
        Self {
            members: names.into_iter().map(member).collect(),
            next: 0,
            deadline: now + allowed,
            allowed,
        }
    }

    pub(super) fn member(&mut self, name: &ClientName) -> Option<&mut Member<Answer>> {
        let at = self.members.binary_search_by(|member| member.name.cmp(name)).ok()?;
        self.members.get_mut(at)
    }

    /// Gives a member up that has not answered yet. Says whether it was there and had not.
    pub(super) fn give_up(&mut self, name: &ClientName) -> bool {
        match self.member(name) {
            Some(member) if member.is_open() => {
                member.status = Status::Failed;
                true
            }
            _ => false,
        }
    }

    /// A member's connection was lost, at a time or for good. Says whether that gave it up.
    pub(super) fn lose(&mut self, name: &ClientName, at: Option<Duration>) -> bool {
        let Some(member) = self.member(name).filter(|member| member.is_open()) else {
            return false;
        };
        match at {
            Some(_) => {
                // What it offered can only be fetched from a new connection: it will be asked, and will offer, again.
                member.status = Status::Asked;
                member.lost = at;
                false
            }
            None => self.give_up(name),
        }
    }

    /// A member is there again. Says whether it has to be asked again.
    pub(super) fn rejoined(&mut self, name: &ClientName) -> bool {
        let Some(member) = self.member(name).filter(|member| member.is_open()) else {
            return false;
        };
        member.status = Status::Asked;
        member.lost = None;
        true
    }

    /// The next answer in order, if it is there. Failed members are passed over.
    pub(super) fn take_next(&mut self) -> Option<(ClientName, Answer)> {
        loop {
            let member = self.members.get_mut(self.next)?;
            match std::mem::replace(&mut member.status, Status::Taken) {
                Status::Held(answer) => {
                    self.next += 1;
                    return Some((member.name.clone(), answer));
                }
                settled @ (Status::Taken | Status::Failed) => {
                    member.status = settled;
                    self.next += 1;
                }
                waiting => {
                    member.status = waiting;
                    return None;
                }
            }
        }
    }

    /// The members whose offers are to be received now: those among the next
    /// `window`.
    pub(super) fn receive(&mut self, window: usize) -> Vec<ClientName> {
        let window = self.members.iter_mut().skip(self.next).take(window);
        let offered = window.filter(|member| matches!(member.status, Status::Offered));
        offered
            .map(|member| {
                member.status = Status::Receiving;
                member.name.clone()
            })
            .collect()
    }

    /// Whether every member's answer was taken or given up.
    pub(super) fn is_settled(&self) -> bool {
        self.next == self.members.len()
    }

    /// Gives up those whose time is over, and says who they are: at the deadline all who have nothing to offer, a
    /// deadline later also those whose offers could not be received, and `grace` after a connection was lost those
    /// who did not come back.
    pub(super) fn expire(&mut self, now: Duration, grace: Duration) -> Vec<(ClientName, Rejection)> {
        let (deadline, last) = (self.deadline, self.deadline + self.allowed);
        let expired = self.members.iter_mut().filter_map(|member| {
            let open = match member.status {
                Status::Asked => now >= deadline,
                Status::Offered | Status::Receiving => now >= last,
                _ => return None,
            };
            let reason = match (open, member.lost) {
                (true, _) => Rejection::Deadline,
                (false, Some(lost)) if now >= lost + grace => Rejection::Disconnected,
                _ => return None,
            };
            member.status = Status::Failed;
            Some((member.name.clone(), reason))
        });
        expired.collect()
    }

    /// When something is next given up if nobody answers.
    pub(super) fn next_deadline(&self, grace: Duration) -> Option<Duration> {
        let times = self.members.iter().filter_map(|member| {
            let time = match member.status {
                Status::Asked => self.deadline,
                Status::Offered | Status::Receiving => self.deadline + self.allowed,
                _ => return None,
            };
            Some(member.lost.map_or(time, |lost| time.min(lost + grace)))
        });
        times.min()
    }
}
