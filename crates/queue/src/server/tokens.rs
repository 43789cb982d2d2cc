//! Who may do what.

use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use subtle::{Choice, ConstantTimeEq};

use crate::link::Token;

/// What can be asked of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Hand over frames.
    Publish,
    /// Receive and acknowledge.
    Subscribe,
    /// Look at numbers and names.
    Look,
    /// See messages that are held.
    Read,
    /// Change or throw away what is held.
    Administer,
}

/// The tokens that may do something. An empty list lets nobody. Every token that may do something may look; to see messages
/// takes one that may subscribe or administer.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// May publish.
    pub publish: Vec<Token>,
    /// May subscribe.
    pub subscribe: Vec<Token>,
    /// May administer.
    pub administer: Vec<Token>,
    /// What holds in place of all these and of their copies, once there is something.
    pub renewal: Renewal,
}

/// Tokens that came later.
#[derive(Clone, Debug, Default)]
pub struct Renewal(Arc<RwLock<Option<Arc<Tokens>>>>);

/// Why a request is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("a token is needed: authorization: Bearer <token>")]
    NoToken,
    #[error("the token is not known")]
    Unknown,
    #[error("the token may not do this")]
    Forbidden,
}

impl Tokens {
    /// Puts others in place of these and of their copies: each request from now on is held to them. A stream that was let in
    /// goes on.
    pub fn renew(&self, tokens: Self) {
        *self.renewal.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tokens));
    }

    /// Whether a request with these headers may do this.
    pub(super) fn check(&self, headers: &HeaderMap, permission: Permission) -> Result<(), Denied> {
        let renewed = self.renewal.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        renewed.as_deref().unwrap_or(self).compare(headers, permission)
    }

    fn compare(&self, headers: &HeaderMap, permission: Permission) -> Result<(), Denied> {
        let header = headers.get(AUTHORIZATION).ok_or(Denied::NoToken)?.as_bytes();
        let (scheme, token) = header.split_at_checked(7).ok_or(Denied::NoToken)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(Denied::NoToken);
        }
        // Every token is compared, so that the time it takes says nothing.
        let among = |list: &[Token]| {
            let equal = |known: &Token| known.expose().as_bytes().ct_eq(token);
            bool::from(list.iter().map(equal).fold(Choice::from(0), |any, one| any | one))
        };
        let lists = [
            (Permission::Publish, among(&self.publish)),
            (Permission::Subscribe, among(&self.subscribe)),
            (Permission::Administer, among(&self.administer)),
        ];
        let known = lists.iter().any(|(_, among)| *among);
        let may = |(of, among): &(Permission, bool)| {
            let includes = match permission {
                Permission::Look => true,
                Permission::Read => *of != Permission::Publish,
                _ => *of == permission,
            };
            *among && includes
        };
        match (lists.iter().any(may), known) {
            (true, _) => Ok(()),
            (false, true) => Err(Denied::Forbidden),
            (false, false) => Err(Denied::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_what_it_is_for() {
        let tokens = Tokens {
            publish: vec![Token::new("p")],
            subscribe: vec![Token::new("s"), Token::new("both")],
            administer: vec![Token::new("both")],
            ..Tokens::default()
        };
        let copy = tokens.clone();
        let check = |header: &str, permission| {
            let value = header.parse().unwrap();
            tokens.check(&HeaderMap::from_iter([(AUTHORIZATION, value)]), permission)
        };
        assert_eq!(check("Bearer p", Permission::Publish), Ok(()));
        assert_eq!(check("bearer both", Permission::Administer), Ok(()));
        assert_eq!(check("Bearer both", Permission::Subscribe), Ok(()));
        assert_eq!(check("Bearer p", Permission::Look), Ok(()));
        assert_eq!(check("Bearer p", Permission::Read), Err(Denied::Forbidden));
        assert_eq!(check("Bearer s", Permission::Read), Ok(()));
        assert_eq!(check("Bearer p", Permission::Subscribe), Err(Denied::Forbidden));
        assert_eq!(check("Bearer s", Permission::Administer), Err(Denied::Forbidden));
        assert_eq!(check("Bearer q", Permission::Look), Err(Denied::Unknown));
        assert_eq!(check("Bearer q", Permission::Publish), Err(Denied::Unknown));
        assert_eq!(check("Bearer ", Permission::Publish), Err(Denied::Unknown));
        assert_eq!(check("Basic cDpw", Permission::Publish), Err(Denied::NoToken));
        assert_eq!(tokens.check(&HeaderMap::new(), Permission::Publish), Err(Denied::NoToken));
        copy.renew(Tokens { publish: vec![Token::new("q")], ..Tokens::default() });
        assert_eq!(check("Bearer q", Permission::Publish), Ok(()));
        assert_eq!(check("Bearer p", Permission::Publish), Err(Denied::Unknown));
    }
}
