package dormouse;

/** The API answers to a request that it does not carry it out, and why (RFC 9457). */
public final class ProblemException extends RuntimeException {
    private final int status;
    private final String detail;
    private final String hint;

    ProblemException(int status, String detail, String hint) {
        super(status + ": " + detail + (hint.isEmpty() ? "" : "; " + hint));
        this.status = status;
        this.detail = detail;
        this.hint = hint;
    }

    public int status() {
        return status;
    }

    public String detail() {
        return detail;
    }

    /** Returns what to do about it; may be empty. */
    public String hint() {
        return hint;
    }
}
