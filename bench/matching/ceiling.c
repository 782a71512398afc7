/* What a machine can do on the rules of Z and U: type = t AND color = c AND weight > w, and nothing else.
 *
 * Rules are sorted by (type, color, weight), so that the ids of those that a message matches lie together: one
 * probe of a hash table for the pair, one binary search among its bounds, one copy. Strings become codes by
 * a hash table over their first eight bytes, which is all that a constant of these rules has. The caller owns every
 * array. Tables have a power of two of slots, at most half of them taken; a slot is empty where its value is -1.
 */
#include <stdint.h>
#include <string.h>

static inline uint32_t slot_of(uint64_t key, int bits) {
    return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> (64 - bits));
}

/* Put values 0 to n - 1 into a table by their keys, which are distinct. */
void fill(int64_t n, const uint64_t *keys, int bits, uint64_t *table_keys, int32_t *table_values) {
    uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t at = slot_of(keys[i], bits);
        while (table_values[at] >= 0) at = (at + 1) & mask;
        table_keys[at] = keys[i];
        table_values[at] = (int32_t)i;
    }
}

static inline int32_t find(uint64_t key, int bits, const uint64_t *table_keys, const int32_t *table_values) {
    uint32_t mask = (1u << bits) - 1, at = slot_of(key, bits);
    while (table_values[at] >= 0) {
        if (table_keys[at] == key) return table_values[at];
        at = (at + 1) & mask;
    }
    return -1;
}

/* Codes of strings as Arrow has them, -1 for what is no constant. `end` is the length of `bytes`. */
void encode(int64_t n, const int32_t *offsets, const uint8_t *bytes, int64_t end, int bits,
            const uint64_t *table_keys, const int32_t *table_values, int32_t *codes) {
    for (int64_t i = 0; i < n; i++) {
        int32_t first = offsets[i], length = offsets[i + 1] - first;
        uint64_t word = 0;
        if (length > 8 || length == 0) {
            codes[i] = -1;
            continue;
        }
        if (first + 8 <= end) {
            memcpy(&word, bytes + first, 8);
            word &= ~0ull >> (64 - 8 * length);
        } else {
            memcpy(&word, bytes + first, length);
        }
        codes[i] = find(word, bits, table_keys, table_values);
    }
}

/* First and last rule of each message, as offsets of its ids in the output, and where they come from. Returns how many
 * ids there are. `starts` has one entry more than there are pairs. */
int64_t locate(int64_t n, const int32_t *types, const int32_t *colors, const int32_t *weights, int bits,
               const uint64_t *table_keys, const int32_t *table_values, const int32_t *starts,
               const int32_t *bounds, int32_t *from, int64_t *offsets) {
    int64_t total = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        from[i] = 0;
        if ((types[i] | colors[i]) >= 0) {
            uint64_t key = (uint64_t)types[i] << 32 | (uint32_t)colors[i];
            int32_t pair = find(key, bits, table_keys, table_values);
            if (pair >= 0) {
                int32_t first = starts[pair], count = starts[pair + 1] - first, weight = weights[i];
                const int32_t *low = bounds + first;
                /* How many bounds are lower, without a branch that could be mispredicted. */
                while (count > 1) {
                    int32_t half = count / 2;
                    low += low[half - 1] < weight ? half : 0;
                    count -= half;
                }
                low += *low < weight;
                from[i] = first;
                total += low - (bounds + first);
            }
        }
        offsets[i + 1] = total;
    }
    return total;
}

/* The ids of every message, one after another. */
void copy(int64_t n, const int32_t *ids, const int32_t *from, const int64_t *offsets, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t count = offsets[i + 1] - offsets[i];
        const int32_t *source = ids + from[i];
        int32_t *target = out + offsets[i];
        if (count < 16) {
            for (int64_t k = 0; k < count; k++) target[k] = source[k];
        } else {
            memcpy(target, source, count * sizeof(int32_t));
        }
    }
}
