//! The checker on sound, odd and broken images.

mod common;
mod corpus;
mod damage;
mod edges;
mod faulty_items;
mod quotas_and_logs;
mod rules;
mod sharing;
