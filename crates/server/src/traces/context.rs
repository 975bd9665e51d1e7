//! The trace that a client began, as the W3C's Trace Context carries it.

use axum::http::{HeaderMap, HeaderValue};

/// The longest `tracestate` that is taken over, which the recommendation asks for at least.
const LONGEST_STATE: usize = 512;

/// The place of a request in a trace that began before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: u128,
    /// The client's span, which is above that of the request.
    pub parent: u64,
    /// The client records its own spans.
    pub is_sampled: bool,
    /// Others' values, which go with the span as they are.
    pub state: Option<String>,
}

impl Context {
    /// The context in `headers`; `None` where there is none, or none that can be read.
    pub fn of(headers: &HeaderMap) -> Option<Context> {
        let mut given = headers.get_all("traceparent").iter();
        let (Some(parent), None) = (given.next(), given.next()) else { return None };
        let mut context = Context::parse(parent.to_str().ok()?)?;
        let states = headers.get_all("tracestate").iter();
        let states: Option<Vec<&str>> =
            states.map(|state| HeaderValue::to_str(state).ok()).collect();
        let state = states.map(|states| states.join(",")).unwrap_or_default();
        let fits = !state.is_empty() && state.len() <= LONGEST_STATE;
        context.state = fits.then_some(state);
        Some(context)
    }

    /// Reads a `traceparent`. Of later versions, what begins as this one does.
    fn parse(text: &str) -> Option<Context> {
        let (version, rest) = text.split_once('-')?;
        let (trace, rest) = rest.split_once('-')?;
        let (parent, rest) = rest.split_once('-')?;
        let (flags, more) = match rest.split_once('-') {
            None => (rest, false),
            Some((flags, _)) => (flags, true),
        };
        let version = hex(version, 2)?;
        if version == 0xff || version == 0 && more {
            return None;
        }
        let (trace, parent) = (hex(trace, 32)?, hex(parent, 16)?);
        let is_sampled = hex(flags, 2)? & 1 == 1;
        let parent = u64::try_from(parent).ok()?;
        (trace != 0 && parent != 0).then_some(Context { trace, parent, is_sampled, state: None })
    }
}

/// A number of so many digits, in lower case as all of them are.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let fits = text.len() == digits && text.bytes().all(is_digit);
    u128::from_str_radix(text, 16).ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::Context;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(pairs: &[(&'static str, &str)]) -> Option<Context> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        Context::of(&headers)
    }

    #[test]
    fn a_context_is_read_with_its_state() {
        let context = of(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]);
        let context = context.unwrap();
        assert_eq!(context.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((context.parent, context.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(context.state.as_deref(), Some("a=1,b=2"));
        let unsampled = PARENT.replace("-01", "-00");
        assert!(!of(&[("traceparent", &unsampled)]).unwrap().is_sampled);
        let later = PARENT.replacen("00-", "cc-", 1) + "-more";
        assert!(of(&[("traceparent", &later)]).is_some());
    }

    #[test]
    fn what_cannot_be_read_is_no_context() {
        let long = format!("{PARENT}-more");
        let zero = PARENT.replace("b7ad6b7169203331", "0000000000000000");
        let upper = PARENT.replace('b', "B");
        let forbidden = PARENT.replacen("00-", "ff-", 1);
        for text in ["", "00", "00--01", &PARENT[..54], &long, &zero, &upper, &forbidden] {
            assert_eq!(of(&[("traceparent", text)]), None, "{text}");
        }
        assert_eq!(of(&[("traceparent", PARENT), ("traceparent", PARENT)]), None);
        assert_eq!(of(&[("tracestate", "a=1")]), None);
        let state = "a".repeat(513);
        assert_eq!(of(&[("traceparent", PARENT), ("tracestate", &state)]).unwrap().state, None);
    }
}
