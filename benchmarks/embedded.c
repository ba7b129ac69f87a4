/* Runs one model on a Cortex-M4 without an operating system, in QEMU's machine mps2-an386.

   The program prints three lines by semihosting: ticks of a timer in a run, bytes of stack, and the
   bits of all outputs. With `-icount shift=0`, an instruction takes a nanosecond of the machine's
   time, and a tick of the timer is 40 instructions. `model.inc` has the model: arrays `outputs`,
   and a function `run_model`. */

#include <stdint.h>
#include <string.h>

#include "model.inc"

#define PAINT 0xA5A5A5A5u

extern uint32_t stack_begin[], stack_end[];
extern uint32_t bss_begin[], bss_end[], data_begin[], data_end[], data_source[];

static volatile uint32_t *const TIMER = (volatile uint32_t *)0x40000000;
enum { CONTROL, VALUE, RELOAD };

static void semihosting(uint32_t number, const void *argument) {
    register uint32_t r0 __asm__("r0") = number;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void print_word(uint32_t word, char end) {
    char text[10];
    for (int digit = 0; digit < 8; ++digit)
        text[digit] = "0123456789abcdef"[word >> (28 - 4 * digit) & 15];
    text[8] = end;
    text[9] = 0;
    semihosting(4, text);
}

/* Calls `run_model` between two reads of the timer. The frame is that of the model alone. */
static __attribute__((noinline)) uint32_t measured(void) {
    TIMER[RELOAD] = 0xFFFFFFFFu;
    TIMER[VALUE] = 0xFFFFFFFFu;
    TIMER[CONTROL] = 1;
    const uint32_t before = TIMER[VALUE];
    run_model();
    return before - TIMER[VALUE];
}

void _exit(int code) {
    const uint32_t reason = code ? 0x20023 : 0x20026;
    semihosting(0x18, (const void *)reason);
    for (;;) {
    }
}

int main(void) {
    uint32_t *top = __builtin_frame_address(0);
    for (uint32_t *at = stack_begin; at < top - 64; ++at) *at = PAINT;
    prepare_model();
    for (uint32_t *at = stack_begin; at < top - 64; ++at) *at = PAINT;
    const uint32_t ticks = measured();
    uint32_t *deepest = stack_begin;
    while (*deepest == PAINT) ++deepest;
    print_word(ticks, '\n');
    print_word((uint32_t)((char *)top - (char *)deepest), '\n');
    for (unsigned i = 0; i < sizeof outputs / 4; ++i) {
        uint32_t bits;
        memcpy(&bits, (const char *)outputs + 4 * i, 4);
        print_word(bits, ' ');
    }
    _exit(0);
}

void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* Enables the unit for f32. */
    __asm__ volatile("dsb\n\tisb");
    for (uint32_t *at = bss_begin; at < bss_end; ++at) *at = 0;
    const uint32_t *from = data_source;
    for (uint32_t *at = data_begin; at < data_end; ++at) *at = *from++;
    main();
}

static void stopped(void) { _exit(1); }

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_end, reset, stopped, stopped, stopped, stopped, stopped,
};
