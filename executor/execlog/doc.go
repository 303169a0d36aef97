// Package execlog is the ordered output log of one exec: numbered chunks, Exit last, kept in memory or
// in files of bounded size. Nothing is lost silently: what is not kept any more is a gap with its
// range and its bytes. It knows nothing of processes, handles and connections; package
// executor joins them. Start at New and Log.Append; OpenStore is the folder for logs in files.
//
// # Data flow
//
//	Append -- memory ------------------------> entries -----> Read   waits at Window, keeps Keep
//	      \-- spill ---> the newest segment, then entries --> Read   entries: the newest 64 KiB only
//	                          segments -- pread -----------/
//	Settle -- entries that are in no file ---> a pack or a segment; the memory is given back
//	Recover - pack, segments ----------------> a log as it was
//
// A log of an attached exec lives in memory and makes the command wait. A log that spills (of a detached
// exec, or one that may drop) writes every chunk to a file before anybody can read it, with
// one write and no sync: it survives a crash of the process, not in full one of the machine. The files of
// a log take MaxBytes at most. When they are full the oldest segment goes (drop), or Append
// waits until the oldest one is acknowledged (block). All logs of a Store share one quota; when that is used
// up each behaves as if its own limit were reached. So does a log whose disk is full.
//
// Most logs are small when they end, and a file for each would cost more than all the rest: what of them is kept
// goes as one record into a file that many share, a pack. It counts with its quota as long as one of its
// logs is there, and is removed as a whole. Where that does not work a log gets segments.
//
// When a chunk cannot be written all the same, it is readable in memory while it is among the newest, and
// then part of a gap. A log that blocks writes no further one before such a chunk is acknowledged: with a
// broken disk it goes on chunk by chunk as long as somebody takes them. Log.Err has the reason.
//
// # Ownership
//
// The caller owns a Log: it ends it, settles it, and discards it or leaves its files for Recover. A log has
// one open file while it is appended to, none after Settle; a reader opens a segment or a pack for the time
// of one Read. A Store has one pack open, until Close. Two logs of one name must not live at once. Locks:
// Log.writing (files change) before Log.mu (what readers see) before Store.mu; Store.packing (packs change) after
// Log.writing, before Store.mu, and never with Log.mu. No file is read or written under Log.mu, so that a slow
// disk delays only who needs it, and nobody waits for room with a lock in hand.
//
// A Store knows the files of every log: it reads its folder once, and of an ended log only what a caller
// wants to see. In memory that are some 110 bytes for a log in a pack.
//
// # Files
//
// Segments are called NAME.000001 and so on, in the format of package recordlog. The first record is
//
//	u8 0 | epoch 16 | u64 number of the first chunk | u64 bytes of output before it
//
// and each other one is a chunk, numbered without holes within a segment:
//
//	u8 stream (1 and up) | u64 number | data
//
// A segment says itself where it begins, so a hole between two of them, however it came, is a gap with
// the exact number of bytes. A segment without chunks as the last one says how far the log went.
//
// Packs are called pack.000001 and so on, in the same format. Each record is a log:
//
//	u8 length of the name | name | epoch 16 | u64 number of the first chunk | u64 bytes of output before it
//	| u64 number of the last chunk | and for each chunk: u8 stream | u32 length | data
//
// OpenStore cuts a pack behind its last whole record, and never appends to one that it found. A
// removal leaves no trace: after a restart removed logs are there again until their pack goes, and
// the caller removes those that it does not know. Of two records of one name the later one is
// right, and segments of another epoch are right against both.
package execlog
