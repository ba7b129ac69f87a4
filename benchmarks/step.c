/* Runs one step of an emitted program: each argument is one piece of its memory, as a number of
   zero bytes or the name of a file. */
#include <stdio.h>
#include <stdlib.h>

void main_prepare(void *const *memory);
void main_run(void *const *memory);

static void *piece(const char *argument) {
    char *end;
    size_t size = strtoull(argument, &end, 10);
    FILE *file = *end ? fopen(argument, "rb") : NULL;
    if (file) {
        fseek(file, 0, SEEK_END);
        size = (size_t)ftell(file);
        rewind(file);
    }
    size = (size / 64 + 1) * 64;
    char *memory = aligned_alloc(64, size);
    if (!memory || (*end && !file)) exit(1);
    for (size_t i = 0; i < size; i++) memory[i] = 0;
    if (file && !fread(memory, 1, size, file)) exit(1);
    return memory;
}

int main(int count, char **arguments) {
    void **memory = calloc((size_t)count, sizeof *memory);
    memory[0] = (void *)1; /* one thread */
    for (int i = 1; i < count; i++) memory[i] = piece(arguments[i]);
    main_prepare(memory);
    main_run(memory);
    return 0;
}
