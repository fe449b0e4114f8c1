//! Counters and latency histograms that cost nothing to forget about.
