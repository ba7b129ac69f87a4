/*
 * A device of federated learning: `client DATA COUNT STATE AVERAGE DELTA`.
 *
 * DATA has COUNT samples, which stay here. STATE has the weights of the last round, as a device has
 * them in flash memory; AVERAGE is the server's mean of all deltas. Both are missing in the first
 * round. The difference that training on DATA made goes to DELTA, which the device sends.
 */
#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, PIXELS = 64, EPOCHS = 2 };

static _Alignas(NET_ALIGNMENT) char memory[NET_MEMORY_BYTES];
static float base[NET_DELTA_COUNT], delta[NET_DELTA_COUNT];

static int read_file(const char *name, void *data, size_t bytes) {
    FILE *file = fopen(name, "rb");
    if (file == NULL) return 0;
    const size_t found = fread(data, 1, bytes, file);
    fclose(file);
    return found == bytes;
}

static void write_file(const char *name, const void *data, size_t bytes) {
    FILE *file = fopen(name, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes) exit(3);
    fclose(file);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 6) return 2;
    const size_t count = (size_t)atoi(arguments[2]);
    const size_t bytes = count * PIXELS * sizeof(float);
    float *images = malloc(bytes + count * sizeof(int32_t));
    int32_t *labels = (int32_t *)(void *)((char *)images + bytes);
    if (!read_file(arguments[1], images, bytes + count * sizeof *labels)) return 2;

    net model;
    if (net_init(&model, memory) != NET_OK) return 1;
    /* The weights of this round: those of the last one, and what all devices learned in it. */
    const int is_first = !read_file(arguments[3], base, sizeof base);
    if (!is_first) {
        if (!read_file(arguments[4], delta, sizeof delta)) return 2;
        if (net_set_weights(&model, base, sizeof base)) return 1;
        if (net_apply_delta(&model, delta, sizeof delta, 1.0f)) return 1;
    }
    net_get_weights(&model, base, sizeof base);
    write_file(arguments[3], base, sizeof base);

    float y[BATCH * 10], loss = 0.0f;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (size_t at = 0; at + BATCH <= count; at += BATCH) {
            const net_inputs inputs = {.x = images + at * PIXELS, .labels = labels + at};
            const net_outputs outputs = {.y = y, .loss = &loss};
            if (net_step(&model, &inputs, &outputs) != NET_OK) return 1;
        }
    }
    /* The base of the first round is in ROM. */
    net_get_delta(&model, is_first ? NULL : base, delta, sizeof delta);
    write_file(arguments[5], delta, sizeof delta);
    printf("%u samples, loss %.3f\n", (unsigned)count, (double)loss);
    free(images);
    return 0;
}
