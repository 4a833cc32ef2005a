//! The workshop's commands, called wrongly: each says what is wrong and what to do, in words and not in a
//! backtrace.

mod wrong_words;
