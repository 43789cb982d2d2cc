//! The broker: a state machine without I/O.
//!
//! Every call takes the time, changes the state, and returns what came of it. Whoever may now go on is
//! collected as [`Wake`]s; when to call [`Broker::advance`] again is [`Broker::next_deadline`]. Same calls,
//! same times, same seed: same results.
//!
//! What a restart must know is records: frames, facts, and now and then the whole state. They change the broker by the
//! same code when they happen and when a log is read ([`Broker::apply`]).
//!
//! # What is promised
//!
//! - A frame is held until every group that wants it has settled it: by its acknowledgement, or as a
//!   dead letter. A topic without groups holds frames up to its bound.
//! - A lease runs from the delivery. At its deadline the delivery fails and the frame is delivered again after a backoff
//!   (exponential, full jitter), to any member of the group, at most `max_retries` times. Then it is a dead
//!   letter, with the reason.
//! - A frame that a member refuses or does not settle in time counts an attempt. Frames of a member that dies count none,
//!   because a lost connection says nothing about them: they come back after the backoff, and are dead letters
//!   after 100 lost members. What a member gives back on purpose ([`NackKind::Release`], [`Broker::leave`], the
//!   drain) counts as neither and comes back at once.
//! - An acknowledgement of a delivery that is over counts if nobody settled the frame since. Repeating one is
//!   fine. One for something that was never delivered is an error, and the rest of the call is applied.
//! - A dead letter is a frame of the topic `T.dead`, stored there before it is settled in `T`. That topic drops its oldest
//!   at its own bound and has no groups.
//! - Redeliveries do not block what is new: they take at most half of a consumer's credits, and wait outside
//!   the order.
//!
//! # Limits
//!
//! Topics, groups, producers, messages and bytes are bounded by [`QueueConfig`](crate::config::QueueConfig); what a group keeps is
//! bounded by what its topic holds.

mod dead;
mod durable;
mod entries;
mod env;
mod facts;
mod given_up;
mod grant;
mod group;
mod ledger;
mod packed;
mod producers;
mod ranges;
mod replay;
mod shelf;
mod terms;
mod topic;
mod whole;

pub use facts::{Fact, TopicChange};
pub use given_up::GivenUp;
pub use producers::TakenSequences;
pub use ranges::Ranges;
pub use replay::{GroupState, JournalRecord, Restored, TopicState};
pub use terms::{
    AdminError, ConsumerId, ConsumerOptions, DeadLetter, DeadSelection, Delivery, DeliveryId, Failure,
    FrameDurability, GroupId, Lent, Nack, NackKind, PublishError, Receipt, ReceiveError, Replayed, Reserved,
    SettleError, Start, SubscribeError, TopicId, Wake,
};
pub use whole::Broker;
