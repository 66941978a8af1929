"""The memory that all RocksDB stores of one process share, and its division."""

from __future__ import annotations

import threading

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    UniversalCompactOptions,
    WriteBufferManager,
)

# Threads, compactions and files on their way to a checkpoint take about this much, whatever the budget. The rest is
# divided among read blocks and write buffers, Python objects, and slack of the allocators.
_FIXED = 6 << 20
_CACHE, _BUFFERS, _OBJECTS = 0.4, 0.16, 0.4

_SMALLEST_TABLE = 512 << 10
_COUNTING = 0.01  # the share of time for counting the entries of all states together
_TABLES = 24  # per state, as long as tables then stay below the usual size


class SlotMemory:
    """One budget: a block cache to which write buffers are charged, and a share of objects for every open state.

    Lives as long as the process; all stores with the same budget share one instance.
    """

    def __init__(self, budget: int) -> None:
        divided = budget - _FIXED
        self._cache = Cache(int(divided * _CACHE))
        self._buffer_bytes = int(divided * _BUFFERS)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self._buffer_bytes, allow_stall=False, cache=self._cache
        )
        self._object_bytes = int(divided * _OBJECTS)
        self._file_bytes = min(64 << 20, max(1 << 20, budget // 16))
        self._lock = threading.Lock()
        self._shares: dict[object, int] = {}  # the memory of each open state's objects

    def allowance(self, table: object, taken: int) -> int:
        """Record the object memory of an open state, and return its limit: what the others leave, or an even share."""
        with self._lock:
            self._shares[table] = taken
            left = self._object_bytes - sum(self._shares.values()) + taken
            return max(left, self._object_bytes // len(self._shares))

    def lent(self, borrower: object) -> int:
        """Set aside half of the memory of objects for a borrower until `remove`, and return how much that is."""
        share = self._object_bytes // 2
        with self._lock:
            self._shares[borrower] = share
        return share

    @property
    def counting_share(self) -> float:
        """The share of time in which one state may count its entries."""
        return _COUNTING / max(len(self._shares), 1)

    def remove(self, table: object) -> None:
        with self._lock:
            self._shares.pop(table, None)

    def table_bytes(self, stored: int) -> int:
        """Return the table size for this many stored bytes, so that a few key groups lie in a few tables."""
        return min(self._file_bytes, max(_SMALLEST_TABLE, stored // _TABLES))

    def options(self) -> Options:
        """Return the options of a database or a column family; keys and values are plain bytes."""
        options = Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.create_missing_column_families(create_missing_cfs=True)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(max(1 << 20, self._buffer_bytes // 2))
        options.set_arena_block_size(max(1 << 15, min(1 << 20, self._buffer_bytes // 64)))
        options.set_max_write_buffer_number(3)
        options.set_max_background_jobs(2)
        options.set_max_file_opening_threads(1)  # the default starts 16 threads per column family to open few tables
        options.set_skip_stats_update_on_db_open(skip=True)
        options.set_max_open_files(512)  # open tables take memory outside any cache; and a restore opens few at once
        options.set_block_based_table_factory(self._table_options())
        options.set_compression_type(DBCompressionType.lz4())
        options.set_target_file_size_base(self._file_bytes)
        # Sorted runs are merged only with runs of similar size, so a small change never rewrites the large ones: that
        # keeps incremental checkpoints small, at the price of some disk space and more runs to search.
        options.set_compaction_style(DBCompactionStyle.universal())
        options.set_universal_compaction_options(UniversalCompactOptions())
        options.set_level_zero_file_num_compaction_trigger(6)
        options.set_compaction_readahead_size(256 << 10)
        options.set_max_manifest_file_size(1 << 20)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    def _table_options(self) -> BlockBasedOptions:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_cache_index_and_filter_blocks(v=True)  # otherwise they would be outside the budget
        blocks.set_bloom_filter(10, block_based=False)
        blocks.set_block_size(8 << 10)
        blocks.set_format_version(5)
        return blocks


_memories: dict[int, SlotMemory] = {}
_memories_lock = threading.Lock()


def slot_memory(budget: int) -> SlotMemory:
    """Return the shared budget of that size in this process."""
    with _memories_lock:
        if budget not in _memories:
            _memories[budget] = SlotMemory(budget)
        return _memories[budget]
