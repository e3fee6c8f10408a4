//! Device sets made by hand.
