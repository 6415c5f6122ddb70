"""The Xid errors that concern memory. Source: NVIDIA's Xid catalogue, as gpud carries it (2025-10-29)."""

XIDS: dict[int, str] = {
    31: "GPU memory page fault, of an application as a rule",
    43: "a process's channel was stopped",
    45: "a process's channels were cleaned up after an error",
    48: "double-bit ECC error",
    63: "a row remap or page retirement was recorded; it takes effect at the next reset",
    64: "a row remap or page retirement failed",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error: the process it hit has to be restarted",
    95: "uncontained ECC error: the GPU needs a reset",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
    140: "unrecovered ECC error: the GPU needs a reset",
    154: "what the GPU needs to recover has changed",
    160: "retirement of a memory channel",
    161: "retirement of a memory channel",
    168: "the memory's capacity was reduced",
    171: "uncorrectable error in DRAM",
    172: "uncorrectable error in SRAM",
    175: "error of the memory subsystem",
}

GRAVE = (48, 64, 79, 94, 95, 119, 120, 140)
"""Counted from 0, so that the first one is seen as an increase."""
