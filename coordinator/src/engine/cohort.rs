//! The clients of one round: who has answered, whose turn it is.

use std::time::Duration;

use selvedge_protocols::{ClientName, Rejection};

/// Where a member is in the round.
#[derive(Debug)]
pub(super) enum Status<Answer> {
    /// It was asked, and has not answered.
    Asked,
    /// It has an answer that has not been asked for yet.
    Offered,
    /// Its answer is being received.
    Receiving {
        /// Since when.
        since: Duration,
    },
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
    /// When it is given up, if it has nothing to offer.
    due: Duration,
    /// Since when its connection has been lost.
    lost: Option<Duration>,
}

impl<Answer> Member<Answer> {
    /// Whether an answer may still come.
    fn is_open(&self) -> bool {
        matches!(self.status, Status::Asked | Status::Offered | Status::Receiving { .. })
    }

    /// Whether its answer is on its way, or has come.
    pub(super) fn is_handing_in(&self) -> bool {
        matches!(
            self.status,
            Status::Offered | Status::Receiving { .. } | Status::Held(_)
        )
    }

    /// Whether its answer was taken.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.status, Status::Taken)
    }

    /// When it is given up, and why, if nothing is heard of it before.
    fn time_limit(&self, deadline: Duration, grace: Duration, allowed: Duration) -> Option<(Duration, Rejection)> {
        match (&self.status, self.lost) {
            (Status::Asked, Some(lost)) if lost + grace < self.due => Some((lost + grace, Rejection::Disconnected)),
            (Status::Asked, _) => Some((self.due, Rejection::Deadline)),
            (Status::Receiving { since }, _) => Some((deadline.max(*since) + allowed, Rejection::Deadline)),
            (Status::Offered | Status::Held(_) | Status::Taken | Status::Failed, _) => None,
        }
    }
}

/// The clients of one round, in the order of their names, and the first whose answer has not been taken.
#[derive(Debug)]
pub(super) struct Cohort<Answer> {
    pub(super) members: Vec<Member<Answer>>,
    next: usize,
    deadline: Duration,
    allowed: Duration,
    /// Nobody is given up before this time, so that there is nothing to look for.
    earliest: Duration,
}

impl<Answer> Cohort<Answer> {
    /// A cohort that has just been asked, and is allowed so much time.
    pub(super) fn new(names: Vec<ClientName>, now: Duration, allowed: Duration) -> Self {
        let deadline = now + allowed;
        let member = |name| Member {
            name,
            status: Status::Asked,
            due: deadline,
            lost: None,
        };
        Self {
            members: names.into_iter().map(member).collect(),
            next: 0,
            deadline,
            allowed,
            earliest: deadline,
        }
    }

    /// Where a client is among the members.
    pub(super) fn position(&self, name: &ClientName) -> Option<usize> {
        self.members.binary_search_by(|member| member.name.cmp(name)).ok()
    }

    pub(super) fn member(&mut self, name: &ClientName) -> Option<&mut Member<Answer>> {
        let at = self.position(name)?;
        self.members.get_mut(at)
    }

    /// Whether an answer of `name` for `round` is awaited, when it is round `now`.
    pub(super) fn awaits(&mut self, name: &ClientName, round: u32, now: u32) -> Result<&mut Member<Answer>, Rejection> {
        match self.member(name) {
            _ if round != now => Err(Rejection::WrongRound { update: round, now }),
            None => Err(Rejection::NotSelected),
            Some(member) => match member.status {
                Status::Asked => Ok(member),
                Status::Failed => Err(Rejection::GivenUp),
                _ => Err(Rejection::Duplicate),
            },
        }
    }

    /// Why an answer does not count that comes when all are settled.
    pub(super) fn late(&mut self, name: &ClientName, round: u32, now: u32) -> Rejection {
        // Nobody is awaited any more.
        self.awaits(name, round, now).err().unwrap_or(Rejection::Duplicate)
    }

    /// Gives a member up that has not answered yet. Says whether it was there and had not.
    pub(super) fn give_up(&mut self, name: &ClientName) -> bool {
        let open = self.member(name).filter(|member| member.is_open());
        open.map(|member| member.status = Status::Failed).is_some()
    }

    /// A member's connection was lost; it may come back within `grace`.
    pub(super) fn lose(&mut self, name: &ClientName, now: Duration, grace: Duration) {
        let (deadline, allowed) = (self.deadline, self.allowed);
        let Some(member) = self.member(name).filter(|member| member.is_open()) else {
            return;
        };
        // What it offered can only be fetched from a new connection: it will be asked, and will offer, again. It has
        // kept the deadline already; a link that breaks later does not undo that, within limits.
        let last = match member.status {
            Status::Asked => member.due,
            Status::Receiving { since } => deadline.max(since) + allowed,
            _ => deadline + allowed,
        };
        member.due = member.due.max(now + grace).min(last);
        member.status = Status::Asked;
        member.lost = Some(now);
        let limit = member.due.min(now + grace);
        self.earliest = self.earliest.min(limit);
    }

    /// A member is there again. Says whether it has to be asked again.
    pub(super) fn rejoined(&mut self, name: &ClientName) -> bool {
        let Some(member) = self.member(name).filter(|member| member.is_open()) else {
            return false;
        };
        member.status = Status::Asked;
        member.lost = None;
        let due = member.due;
        self.earliest = self.earliest.min(due);
        true
    }

    /// The next answer in order, if it is there, and whose it is. Failed members are passed over.
    pub(super) fn take_next(&mut self) -> Option<(usize, Answer)> {
        loop {
            let at = self.next;
            let member = self.members.get_mut(at)?;
            match std::mem::replace(&mut member.status, Status::Taken) {
                Status::Held(answer) => {
                    self.next += 1;
                    return Some((at, answer));
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

    /// The members whose offers are to be received now: those among the next `window`.
    pub(super) fn receive(&mut self, window: usize, now: Duration) -> Vec<ClientName> {
        self.earliest = self.earliest.min(self.deadline.max(now) + self.allowed);
        let window = self.members.iter_mut().skip(self.next).take(window);
        let offered = window.filter(|member| matches!(member.status, Status::Offered));
        offered
            .map(|member| {
                member.status = Status::Receiving { since: now };
                member.name.clone()
            })
            .collect()
    }

    /// Whether every member's answer was taken or given up.
    pub(super) fn is_settled(&self) -> bool {
        self.next == self.members.len()
    }

    /// Gives up those whose time is over, and says who they are: at the deadline all who have nothing to offer; as long
    /// again later, or after they were asked for it, those whose offers have not come; and, `grace` after a connection
    /// was lost, those who did not come back. An offer that waits for its turn is never late.
    pub(super) fn expire(&mut self, now: Duration, grace: Duration) -> Vec<(ClientName, Rejection)> {
        let mut expired = Vec::new();
        if now < self.earliest {
            return expired;
        }
        self.earliest = Duration::MAX;
        for member in &mut self.members {
            match member.time_limit(self.deadline, grace, self.allowed) {
                Some((limit, reason)) if now >= limit => {
                    member.status = Status::Failed;
                    expired.push((member.name.clone(), reason));
                }
                Some((limit, _)) => self.earliest = self.earliest.min(limit),
                None => {}
            }
        }
        expired
    }

    /// When it is time to look for somebody to give up; there may turn out to be nobody.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        (!self.is_settled() && self.earliest < Duration::MAX).then_some(self.earliest)
    }

    /// The members' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &ClientName> {
        self.members.iter().map(|member| &member.name)
    }

    /// The names of those whose answers were taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = &ClientName> {
        self.members
            .iter()
            .filter(|member| member.is_taken())
            .map(|member| &member.name)
    }
}
